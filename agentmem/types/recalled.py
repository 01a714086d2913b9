"""The record of recalled messages in a prompt."""

from dataclasses import dataclass

from agentmem.types.fields import Checked
from agentmem.types.messages import MessageId
from agentmem.types.passages import TextRange, characters


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledHit(Checked):
    """A message that was recalled for a prompt, and why it was chosen."""

    message_id: MessageId
    position: int | None
    """Its position in the branch of the prompt; None for one of another session."""

    score: float
    """Sort key, higher is better; comparable within one prompt."""

    ranks: tuple[tuple[str, int], ...]
    """Its rank, from 1, in each ranking that found it."""

    passages: tuple[TextRange, ...] = ()
    """The shown parts, in characters of its `memory_text`; empty for the whole message."""

    superseded_by: int | None = None
    """Position of the later message that replaced it, as its label says; None if none did."""

    def explain(self) -> str:
        """Describe the message and its ranks in words."""
        where = (
            f"message {self.message_id} of another session"
            if self.position is None
            else f"message {self.position}"
        )
        ranks = "".join(f", {name} rank {place}" for name, place in self.ranks)
        where += characters(self.passages)
        if self.superseded_by is not None:
            where += f", replaced by message {self.superseded_by}"
        return f"recalled {where}: score {self.score:.4g}{ranks}"
