"""One reply: the model's chunks on their way to the caller, and the answer into the store."""

from collections.abc import Callable, Generator, Iterator
from typing import Self

from agentmem.errors import ConfigError
from agentmem.memory.arguments import thought_and_answer
from agentmem.protocols import ChunkStream
from agentmem.types import (
    FinishReason,
    GeneratedIds,
    Generation,
    Message,
    Origin,
    Prompt,
    Reply,
    Role,
    StoredMessage,
    repair_text,
)

Split = Callable[[str], tuple[str, str]]
Save = Callable[[Message, Origin], StoredMessage]
Saved = Callable[[StoredMessage], None]


def _undivided(text: str) -> tuple[str, str]:
    return "", text


class ReplyStream:
    """
    The text of a reply as it is generated: an iterator over pieces of text.

    All that the model says comes, thoughts with their marks too, as it comes. In `reply` and in
    the store they are apart: its text is the answer, and its message has a `ReasoningPart`.

    After the last piece `reply` has the whole answer. Leaving early (`close()`, the end of a
    ``with`` block, or dropping the iterator), an interrupt or an error ends the generation; what
    was said until then is stored as a partial answer, which another answer to the same turn takes
    the place of in prompts, and `reply` stays unset. An answer whose time
    is over in the middle ends as a whole one does: it is stored and `reply` has it, with
    `FinishReason.ABORT`. Where nothing was said nothing is stored.

    Args:
        prompt: what is answered.
        chunks: the answer as it comes.
        save: stores it.
        saved: told of it then. It may raise; the answer is stored, and not once more.
        split: tells the thoughts in it from the answer proper.
    """

    def __init__(
        self,
        prompt: Prompt,
        chunks: ChunkStream,
        save: Save,
        saved: Saved,
        *,
        split: Split = _undivided,
    ) -> None:
        self.prompt = prompt
        self._split = split
        self._reply: Reply | None = None
        self._given: Message | None = None
        self._save = save
        self._saved = saved
        self._pieces = self._run(chunks)

    @property
    def reply(self) -> Reply:
        """
        The finished answer.

        Raises:
            ConfigError: the stream was not read to its end.
        """
        if self._reply is None:
            raise ConfigError("the reply is not finished: read the stream to its end first")
        return self._reply

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is still running; safe to call twice."""
        self._pieces.close()

    def _run(self, chunks: ChunkStream) -> Generator[str]:
        said: list[str] = []
        try:
            for chunk in chunks:
                if chunk.result is not None:
                    self._finish(chunk.result)
                if chunk.text:
                    said.append(chunk.text)
                    yield chunk.text
        except BaseException:
            # Left early, interrupted, or failed: what the caller has read was said.
            chunks.close()
            if self._reply is None and (stored := self._keep_half("".join(said))) is not None:
                self._saved(stored)
            raise

    def _finish(self, result: Generation) -> None:
        origin = Origin.CUT if result.finish_reason is FinishReason.ABORT else Origin.SAID
        ids = GeneratedIds(fingerprint=self.prompt.fingerprint, token_ids=result.token_ids)
        message = self._store(result.text, ids if result.is_exact else None, origin=origin)
        # Another call may have stored its answer to the same first, and then that is the answer.
        is_other = message is not None and message.message != self._given
        self._reply = Reply(
            text=message.message.text
            if message is not None and is_other
            else self._split(result.text)[1],
            finish_reason=result.finish_reason,
            usage=result.usage,
            prompt=self.prompt,
            message=message,
        )
        if message is not None:
            self._saved(message)

    def _keep_half(self, text: str) -> StoredMessage | None:
        """Keep what was said of an answer that another one may take the place of."""
        return self._store(text, origin=Origin.PARTIAL)

    def _store(
        self, text: str, ids: GeneratedIds | None = None, *, origin: Origin = Origin.SAID
    ) -> StoredMessage | None:
        """Keep an answer; a model may say nothing, or what no database can hold."""
        legal = repair_text(text)
        thought, answer = self._split(legal)
        parts = thought_and_answer(thought, answer)
        if not parts:
            return None
        self._given = Message(
            role=Role.ASSISTANT,
            parts=parts,
            # Ids that spell another text than the stored one would show the model words
            # that nobody can read back.
            generated=ids if legal == text else None,
        )
        return self._save(self._given, origin)
