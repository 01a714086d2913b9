"""An OpenAI-compatible server on this machine, for tests: it finds a code in what it is asked."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class OpenAIServer(ThreadingHTTPServer):
    """Keeps what it was asked in *asked*."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self._answer("application/json", json.dumps({"data": [{"id": "stub-7b"}]}))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        found = "4417" if "4417" in json.dumps(asked["messages"]) else "no code"
        if not asked.get("stream"):
            choices = [{"message": {"content": f"It is {found}"}}]
            self._answer("application/json", json.dumps({"choices": choices}))
            return
        events = [
            {"choices": [{"delta": {"content": piece}, "finish_reason": None}]}
            for piece in ("It is ", found)
        ]
        events += [
            {"choices": [{"delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 5}}},
        ]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        self._answer("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))

    def _answer(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


@contextlib.contextmanager
def openai_server():
    with OpenAIServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
