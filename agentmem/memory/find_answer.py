"""The message that an answer would answer, and its existing answer."""

from collections.abc import Generator, Iterator
from dataclasses import replace

from agentmem.config import Budget
from agentmem.context import Assembler, is_answer
from agentmem.errors import ConflictError, InvalidInputError, TranscriptError
from agentmem.memory.load_branch import is_same, load_view
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import Chunk, ChunkStream
from agentmem.types import (
    BranchId,
    FinishReason,
    Generation,
    Inherit,
    Origin,
    Prompt,
    Role,
    StoredMessage,
    Usage,
)

_PAGE = 16


def make_answerable(runtime: Runtime, branch_id: BranchId) -> None:
    """
    Close open calls with synthetic results, and check that the branch ends with an open message.

    Raises:
        TranscriptError: it ends with an answer.
        InvalidInputError: it has no messages yet.
        ConflictError: a call is open on a branch that has ended.
    """
    if runtime.store.messages.close_calls(runtime.scope, branch_id):
        runtime.notify_appended()
        return
    for stored in _backwards(runtime, branch_id):
        role, origin = stored.message.role, stored.origin
        if origin is Origin.DELETED:
            continue
        if role in (Role.USER, Role.TOOL) or origin in (Origin.PROMOTED, Origin.CUT):
            return
        # A partial answer, a deleted one and a blank one count as none: the message is answered
        # again.
        if not stored.message.is_blank and origin not in (Origin.PARTIAL, Origin.DAMAGED):
            raise TranscriptError(
                f"message {stored.position} has answered the last message: append one with "
                "reply(text), or get another answer with session.regenerate()"
            )
    raise InvalidInputError(
        "there is no message to answer yet: pass one to reply(text), or append() a user's message"
    )


def _backwards(runtime: Runtime, branch_id: BranchId) -> Iterator[StoredMessage]:
    """Yield the last messages of the branch, newest first, without uninherited ones."""
    branch = runtime.store.sessions.branch(runtime.scope, branch_id)
    floor = 0 if branch.inherit is Inherit.ALL else branch.forked_at
    last = branch.head
    while last > floor:
        first = max(floor + 1, last - _PAGE + 1)
        yield from reversed(runtime.store.messages.read(runtime.scope, branch_id, first, last))
        last = first - 1


def find_answer(
    runtime: Runtime, branch_id: BranchId, asked: StoredMessage
) -> StoredMessage | None:
    """
    Return the answer to the user's message *asked*; None if it has none yet.

    Raises:
        ConflictError: the conversation continued without one.
    """
    answer: StoredMessage | None = None
    for stored in _forwards(runtime, branch_id, asked.position + 1):
        if stored.message.role is Role.USER:
            if answer is None:
                raise ConflictError(
                    f"message {asked.position} was stored under this client key and has no "
                    f"answer, and the conversation continued with message {stored.position}: "
                    "send it again under a new key"
                )
            break
        if is_answer(stored):
            answer = stored
    return answer


def give_again(
    runtime: Runtime, branch_id: BranchId, budget: Budget, answer: StoredMessage
) -> tuple[Prompt, ChunkStream]:
    """Return the prompt of *answer*, where known, and the answer as one chunk."""
    view, previous = load_view(runtime, branch_id, budget, answer.position - 1)
    prompt = Assembler(runtime.need_counter(), budget, runtime.policy).assemble(view)
    if previous is not None and is_same(prompt, previous):
        prompt = replace(prompt, assembly_id=previous.id)
    return prompt, _chunks(prompt, answer)


def _chunks(prompt: Prompt, answer: StoredMessage) -> Generator[Chunk]:
    text, generated = answer.message.text, answer.message.generated
    number = prompt.num_tokens
    nothing = Usage(
        prompt_tokens=number, cached_tokens=number, completion_tokens=0, ttft_s=0, total_s=0
    )
    is_cut = answer.origin is Origin.CUT
    result = Generation(
        text=text,
        token_ids=() if generated is None else generated.token_ids,
        finish_reason=FinishReason.ABORT if is_cut else FinishReason.STOP,
        usage=nothing,
    )
    yield Chunk(text=text)
    yield Chunk(text="", result=result)


def _forwards(runtime: Runtime, branch_id: BranchId, first: int) -> Iterator[StoredMessage]:
    while page := runtime.store.messages.read(runtime.scope, branch_id, first, first + _PAGE - 1):
        yield from page
        first = page[-1].position + 1
