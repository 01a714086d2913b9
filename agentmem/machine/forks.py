"""
Forks of this process: what must not be in use while one is made, and what it has to have anew.

A fork has one thread, and a copy of every lock as it was: one that another thread held stays held.
"""

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Has locks or threads that a fork cannot go on with."""

    def begin_anew(self) -> None:
        """Make them anew; called in the child, which has no other thread yet."""


class Holdable(Renewable, Protocol):
    """Has something that must not be in use while a fork is made."""

    def hold(self) -> None:
        """Wait until it is unused, and keep it so."""

    def let_go(self) -> None:
        """Go on, in the parent."""


_renewed: "weakref.WeakSet[Renewable]" = weakref.WeakSet()
_held: "weakref.WeakSet[Holdable]" = weakref.WeakSet()
_holding: list[Holdable] = []


def renew_in_child(owner: Renewable) -> None:
    """Call `begin_anew` of *owner* in each fork, as long as *owner* is in use."""
    _renewed.add(owner)


def hold_in_fork(owner: Holdable) -> None:
    """Hold *owner* while a fork is made, and renew it in the child."""
    _held.add(owner)
    _renewed.add(owner)


def _before() -> None:
    for owner in list(_held):
        owner.hold()
        _holding.append(owner)


def _after_in_parent() -> None:
    while _holding:
        _holding.pop().let_go()


def _after_in_child() -> None:
    _holding.clear()
    for owner in list(_renewed):
        owner.begin_anew()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
