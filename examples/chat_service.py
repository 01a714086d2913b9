"""
A chat service: answers are streamed; a client that leaves, or a stop button, ends the generation.

Run ``python examples/chat_service.py`` (it needs starlette and uvicorn), then
``curl -N -d 'Hello!' http://127.0.0.1:8000/ana`` and, meanwhile,
``curl -X POST http://127.0.0.1:8000/ana/stop``.
"""

from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agentmem import AgentMemError, AsyncReplyStream, Memory


class ChatService:
    """One memory for all users; what runs now is kept by user, to be stopped."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._running: dict[str, AsyncReplyStream] = {}
        self.app = Starlette(
            routes=[
                Route("/health", self.health),
                Route("/{user}", self.say, methods=["POST"]),
                Route("/{user}", self.history),
                Route("/{user}/stop", self.stop, methods=["POST"]),
            ]
        )

    async def say(self, request: Request) -> Response:
        """Store what the user says, and stream the answer."""
        user = request.path_params["user"]
        text = (await request.body()).decode()
        try:
            session = await self._memory.asession("chat", user=user)
            # The question is stored here: what is wrong with it is an answer of its own.
            stream = await session.astream(text, timeout_s=60)
        except AgentMemError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        return StreamingResponse(self._pieces(user, stream), media_type="text/plain")

    async def _pieces(self, user: str, stream: AsyncReplyStream) -> AsyncIterator[str]:
        # Leaving the block, for whatever reason, ends the generation and stores what there is.
        async with stream:
            self._running[user] = stream
            try:
                async for piece in stream:
                    yield piece
            finally:
                self._running.pop(user, None)

    async def stop(self, request: Request) -> Response:
        """End the answer that is on its way to this user; what was said is kept."""
        stream = self._running.get(request.path_params["user"])
        if stream is not None:
            stream.close()
        return JSONResponse({"stopped": stream is not None})

    async def history(self, request: Request) -> Response:
        """Return what was said."""
        session = await self._memory.asession("chat", user=request.path_params["user"])
        said = await session.amessages()
        return JSONResponse([[one.message.role, one.message.text, one.origin] for one in said])

    async def health(self, _: Request) -> Response:
        """Answer a probe."""
        health = await self._memory.ahealth()
        return JSONResponse({"ok": health.is_ok}, status_code=200 if health.is_ok else 503)


if __name__ == "__main__":
    import uvicorn

    from agentmem.inference import LocalModel

    with LocalModel.load() as model, Memory.open("sqlite:///service.db", model=model) as opened:
        uvicorn.run(ChatService(opened).app, port=8000)
