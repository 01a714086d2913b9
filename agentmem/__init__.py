"""
Conversation memory for agents, with an exact record of each prompt.

Lazy imports: ``__init__.pyi`` is the one list of public names, and each is imported on first use,
since importing SQLAlchemy alone takes longer than many programs that only read a setting. The local
model is in `agentmem.inference`, fakes for tests in `agentmem.testing`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
