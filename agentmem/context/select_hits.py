"""Select the recalled messages of a prompt, within their share of the budget."""

from agentmem.config import Budget
from agentmem.context.draft import Draft
from agentmem.context.pack_hits import pack
from agentmem.context.render import Renderer
from agentmem.protocols import Hit, first_messages
from agentmem.types import DisplayForm


def select_hits(
    draft: Draft,
    hits: tuple[Hit, ...],
    renderer: Renderer,
    budget: Budget,
    most: int | None = None,
) -> tuple[Hit, ...]:
    """
    Select hits in order of score, skipping those that do not fit.

    Messages in the prompt, and duplicates of them, are omitted. A turn with a block gets no second
    one, which would change the prefix of the prompt.

    Args:
        draft: the prompt with its window; the same window gives the same hits.
        hits: best first, deduplicated.
        renderer: counts tokens.
        budget: the share of recalled messages.
        most: maximum number of messages outside of the window to consider. A list truncated for
            another window then gives the same result.
    """
    if not hits or draft.anchor in {group.anchor for group in draft.groups}:
        return ()
    line = renderer.line
    ids = {piece.stored.id for piece in draft.window}
    lines = {line(piece.stored.message) for piece in draft.window if piece.form is DisplayForm.FULL}
    outside = [
        hit for hit in hits if hit.stored.id not in ids and line(hit.stored.message) not in lines
    ]
    kept = {line(hit.stored.message) for group in draft.groups for hit in group.hits}
    best = [
        hit
        for hit in (outside if most is None else first_messages(outside, most))
        if line(hit.stored.message) not in kept and (hit.is_local or not draft.keep_recalled)
    ]
    room = budget.retrieved_tokens - renderer.count_groups(draft.groups)
    return pack(best, room, renderer)
