"""Streamable HTTP in front of `duet-rpc mcp`, because the suite speaks nothing else.

What the client says goes to a process unchanged, and what that answers goes back. In the
older era a session is a process, in the stateless one a single process serves everybody.
The checks of headers here are the duties of the HTTP side, of which duet-rpc knows nothing.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import uuid
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE = 20.0
STATELESS = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
HEADER_MISMATCH = -32020
STATUS = {-32601: 404, -32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400}

Message = dict[str, Any]


class Process:
    """One `duet-rpc mcp`, and the requests that wait for it."""

    def __init__(self, command: Sequence[str]) -> None:
        # Methods of whoever runs this would be among the tools.
        env = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent", "DUET_RPC_CONFIG": ""}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        self._waiting: dict[object, queue.Queue[Message | None]] = {}  # by id
        self._tokens: dict[object, object] = {}  # progress token to id
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Message) -> queue.Queue[Message | None]:
        """Send a message; return where its answers will be."""
        answers: queue.Queue[Message | None] = queue.Queue()
        if "id" in message:
            self._waiting[message["id"]] = answers
            meta = (message.get("params") or {}).get("_meta") or {}
            self._tokens[meta.get("progressToken")] = message["id"]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        return answers

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            id = message.get("id")
            if "method" in message:
                id = self._tokens.get(message["params"].get("progressToken"))
            if id in self._waiting:
                self._waiting[id].put(message)
        for answers in self._waiting.values():
            answers.put(None)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)


class Handler(BaseHTTPRequestHandler):
    """One HTTP request."""

    server: Shim
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Carry one message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        version = self.headers.get("MCP-Protocol-Version", "").strip()
        if _names_version(message) or version >= STATELESS:
            self._serve_stateless(message, version)
        elif message.get("method") == "initialize":
            session = uuid.uuid4().hex
            self.server.sessions[session] = Process(self.server.command)
            self._answer(self.server.sessions[session], message, session)
        else:
            process = self.server.sessions.get(self.headers.get("Mcp-Session-Id", ""))
            if process is None:
                self._reply(404, _error(message, -32600, "No such session"))
            else:
                self._answer(process, message)

    def do_GET(self) -> None:
        """Offer no stream beside the answers: duet-rpc says nothing unasked."""
        self._reply(405)

    def do_DELETE(self) -> None:
        """End a session."""
        process = self.server.sessions.pop(self.headers.get("Mcp-Session-Id", ""), None)
        if process is not None:
            process.close()
        self._reply(204 if process is not None else 404)

    def _serve_stateless(self, message: Message, version: str) -> None:
        wrong = self._wrong_header(message, version)
        if wrong:
            self._reply(400, _error(message, HEADER_MISMATCH, f"Header mismatch: {wrong}"))
            return
        self._answer(self.server.stateless, message, statuses=STATUS)

    def _wrong_header(self, message: Message, version: str) -> str | None:
        if _names_version(message) not in (None, version):
            return "MCP-Protocol-Version"
        if self.headers.get("Mcp-Method", "").strip() != message.get("method"):
            return "Mcp-Method"
        member = NAMED_BY.get(message["method"])
        if member and self.headers.get("Mcp-Name", "").strip() != message["params"].get(member):
            return "Mcp-Name"
        return None

    def _answer(
        self,
        process: Process,
        message: Message,
        session: str | None = None,
        statuses: dict[int, int] | None = None,
    ) -> None:
        answers = process.send(message)
        if "id" not in message:
            self._reply(202)
            return
        said = answers.get(timeout=PATIENCE)
        if said is None:
            self._reply(500)
        elif "method" not in said:
            code = said.get("error", {}).get("code")
            self._reply((statuses or {}).get(code, 200), said, session)
        else:
            self._stream(said, answers)

    def _stream(self, said: Message | None, answers: queue.Queue[Message | None]) -> None:
        """Send what comes before the reply as events, and the reply as the last."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        while said is not None:
            self.wfile.write(b"event: message\ndata: " + json.dumps(said).encode() + b"\n\n")
            self.wfile.flush()
            said = answers.get(timeout=PATIENCE) if "method" in said else None
        self.close_connection = True

    def _reply(self, status: int, body: Message | None = None, session: str | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if data:
            self.send_header("Content-Type", "application/json")
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Shim(ThreadingHTTPServer):
    """An HTTP server on a free port of this machine."""

    daemon_threads = True

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.command = command
        self.sessions: dict[str, Process] = {}
        self.stateless = Process(command)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def close(self) -> None:
        """End all sessions and the server."""
        self.shutdown()
        self.server_close()
        for process in (self.stateless, *self.sessions.values()):
            process.close()


def _names_version(message: Message) -> str | None:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get(VERSION_KEY) if isinstance(meta, dict) else None


def _error(message: Message, code: int, words: str) -> Message:
    error = {"code": code, "message": words}
    return {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
