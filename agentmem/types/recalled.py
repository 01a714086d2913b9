"""What a prompt tells of the messages that were recalled for it."""

from dataclasses import dataclass

from agentmem.types.fields import Checked
from agentmem.types.messages import MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledHit(Checked):
    """A message that was recalled for a prompt, and why it was chosen."""

    message_id: MessageId
    position: int | None
    """Where it stands in the branch of the prompt; None for one of another session."""

    score: float
    """What it was ordered by, higher is better; comparable within one prompt."""

    ranks: tuple[tuple[str, int], ...]
    """Each list that found it, and its place in that from 1 on."""

    def explain(self) -> str:
        """Describe in words what was recalled and how it was found."""
        where = (
            f"message {self.message_id} of another session"
            if self.position is None
            else f"message {self.position}"
        )
        ranks = "".join(f", {name} rank {place}" for name, place in self.ranks)
        return f"recalled {where}: score {self.score:.4g}{ranks}"
