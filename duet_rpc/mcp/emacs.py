"""`duet-rpc mcp --emacs`: the running Emacs, for the user's methods and for tools written in Lisp.

Emacs is reached as emacsclient reaches it, through the socket of its own server (`server-start`).
One form is evaluated there, `(duet-rpc-serve-mcp "…")`. It names a folder, in base64, with the
request in it, as JSON; duet-rpc.el puts the reply beside it. So nothing that is asked can be taken
for Lisp or for the protocol of the socket, and size does not matter: what comes over the socket
costs Emacs time that is quadratic in its length, 20 s for 2 MB in Emacs 28.

An AI client can name the tools that the user has defined there, and nothing else; `ctx.emacs` is
for the user's own methods, whatever they do with what a client sent them.

Emacs reads the socket whenever it waits, also at a prompt or in a recursive edit, but not while
it computes. It answers with its pid as soon as it has read a part of the request. One that does
not do so in time is busy; it is sent nothing more, and so does nothing later.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import sys
from base64 import b64encode
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple

from duet_rpc.jsonrpc.errors import REQUEST_FAILED, TITLES, Error, RpcError
from duet_rpc.jsonrpc.jsontext import NOT_JSON, dumps, loads
from duet_rpc.methods.asking import Unsupported, raise_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duet_rpc.methods.asking import Question

CALL_TIMEOUT = 1.5
"""Seconds within which Emacs begins with a call, or is busy: the caller is told so within 2 s."""

LIST_TIMEOUT = 1.0
"""Seconds that a list of tools waits for Emacs."""

GREETING = b"-current-frame "
"""Emacs answers to this with its pid, and waits for the rest of the line."""

CHUNK = 65536
PREFIX = "duet-rpc-"
"""How the folders of calls begin."""

ABANDONED_AFTER = 60.0
"""Seconds that a folder is left alone, locked or not: it is made first, and then locked."""

REQUEST, REPLY = "request", "reply"


class About(NamedTuple):
    """What Emacs shows of a call."""

    client: str  # who makes it
    purpose: str  # the tool or the method that it is made for


class EmacsServer:
    """The server of one Emacs, asked through a new connection each time."""

    def __init__(self, name: str | None) -> None:
        self._name = name or os.environ.get("EMACS_SOCKET_NAME") or "server"
        self._session = f"{os.getpid()}-{monotonic()}"  # whose handles Emacs keeps apart

    def caller(self, client: str, method: str) -> EmacsCaller:
        """Return who answers what a method asks of Emacs."""
        return EmacsCaller(self, About(client, method))

    def ask(self, what: str, params: object, about: About, timeout: float = CALL_TIMEOUT) -> Any:
        """Ask duet-rpc.el for something; return the result, or raise RpcError."""
        who = {"client": about.client, "for": about.purpose}
        request = {"session": self._session, "method": what, "params": params, **who}
        reply = self._evaluate(dumps(request), timeout)
        if not isinstance(reply, dict) or not ("result" in reply or "error" in reply):
            raise failed("Emacs answered something else than duet-rpc.el does; update duet-rpc.el")
        if "error" in reply:
            error = reply["error"]
            raise_error(Error(error["code"], error["message"], error.get("data")))
        return reply["result"]

    def _evaluate(self, request: str, timeout: float) -> Any:
        path = socket_path(self._name)  # it may begin or end at any time
        with connect(path, timeout) as connection, private_folder(path) as folder:
            try:
                connection.sendall(GREETING)
                if not connection.recv(CHUNK):
                    raise failed(f"the Emacs at {path} closed the connection")
                connection.settimeout(None)  # it has begun: from here on, a call may take its time
                write(os.path.join(folder, REQUEST), request)
                connection.sendall(f"-eval {form_of(folder)}\n".encode("ascii"))
                check_printed(read_printed(connection))
            except socket.timeout:
                raise failed(f"Emacs is busy: it did not answer within {timeout:g} s") from None
            except OSError as error:
                raise failed(f"the connection to Emacs broke: {error.strerror}") from None
            return read_reply(os.path.join(folder, REPLY))


def socket_path(name: str) -> str:
    """Return where Emacs has the socket of a server, as emacsclient looks for it."""
    if os.sep in name:
        return os.path.abspath(os.path.expanduser(name))
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.exists(found := os.path.join(runtime, "emacs", name)):
        return found
    folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - where Emacs has it
    return os.path.join(folder, f"emacs{os.geteuid()}", name)


def connect(path: str, timeout: float) -> socket.socket:
    """Connect to the server of an Emacs, if it is the user's own."""
    check_owner(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(path)
        check_peer(connection)
    except BaseException as error:
        connection.close()
        if isinstance(error, (socket.timeout, BlockingIOError)):
            raise failed("Emacs is busy: it does not accept connections") from None
        if isinstance(error, OSError):
            raise absent(path) from None
        raise
    return connection


def check_owner(path: str) -> None:
    """Raise where there is no socket, or one that others could have put there."""
    try:
        found, folder = os.stat(path), os.stat(os.path.dirname(path))
    except OSError:
        raise absent(path) from None
    if not stat.S_ISSOCK(found.st_mode):
        raise absent(path)
    if found.st_uid != os.geteuid() or folder.st_uid != os.geteuid() or folder.st_mode & 0o022:
        raise failed(f"{path} is refused: the socket and its folder must be yours alone")


def check_peer(connection: socket.socket) -> None:
    """Raise where it is not a process of the same user that listens, as far as the system says."""
    if sys.platform == "linux":
        size = struct.calcsize("3i")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        if struct.unpack("3i", credentials)[1] != os.geteuid():
            raise failed("the process behind the socket of Emacs is another user's")


def absent(path: str) -> Unsupported:
    """Return the error for a socket that no Emacs listens at."""
    return Unsupported(f"no Emacs listens at {path}; start one with M-x server-start")


def failed(what: str) -> RpcError:
    """Return the error for an Emacs that was reached and did not answer well."""
    return RpcError(REQUEST_FAILED, f"{TITLES[REQUEST_FAILED]}: {what}")


# The protocol of emacsclient.


def form_of(folder: str) -> str:
    """Return the form to evaluate, quoted; base64 has nothing that would need more than that."""
    text = b64encode(os.fsencode(folder)).decode("ascii")
    form = f"(if (fboundp 'duet-rpc-serve-mcp) (duet-rpc-serve-mcp \"{text}\") 'missing)"
    return form.replace(" ", "&_")


def read_printed(connection: socket.socket) -> str:
    """Return what Emacs prints as the value of the form, to the end of the connection."""
    received = bytearray()
    while chunk := connection.recv(CHUNK):
        received += chunk
    printed = []
    for line in received.decode("utf-8", "replace").split("\n"):
        word, _, text = line.partition(" ")
        if word in ("-print", "-print-nonl"):
            printed.append(text)
        elif word == "-error":
            raise failed(f"Emacs answered with an error: {unquote(text)[:500]}")
    if not printed:
        raise failed("Emacs closed the connection without an answer; it may have exited")
    return unquote("".join(printed)).strip()


def unquote(text: str) -> str:
    """Return an argument of the protocol as it was."""
    return re.sub("&(.)", lambda found: QUOTED.get(str(found[1]), str(found[1])), text)


QUOTED = {"_": " ", "n": "\n"}


def check_printed(printed: str) -> None:
    """Raise where the form has not had the value that it has where all is well."""
    if printed == "missing":
        raise Unsupported("duet-rpc.el is not loaded in that Emacs: evaluate (require 'duet-rpc)")
    if printed == "nil":
        raise failed("quit in Emacs")


# The files that request and reply are in.


@contextmanager
def private_folder(socket_path: str) -> Iterator[str]:
    """Make a folder for one call, beside the socket, where Emacs sees it and nobody else.

    It is locked for as long as the call takes. One that nobody has locked is left over from a
    process that was killed, and is removed by the next call.
    """
    place = os.path.dirname(socket_path)
    remove_abandoned(place)
    with TemporaryDirectory(prefix=PREFIX, dir=place) as folder:
        lock = os.open(folder, os.O_RDONLY)
        try:
            flock(lock, LOCK_SH)
            yield folder
        finally:
            os.close(lock)


def remove_abandoned(place: str) -> None:
    """Remove the folders of calls whose process is gone."""
    with os.scandir(place) as entries:
        found = [each for each in entries if each.name.startswith(PREFIX)]
    for each in found:
        with suppress(OSError):  # it is in use, or somebody else was quicker
            if each.is_dir(follow_symlinks=False) and age_of(each) > ABANDONED_AFTER:
                lock = os.open(each.path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    flock(lock, LOCK_EX | LOCK_NB)
                    rmtree(each.path)
                finally:
                    os.close(lock)


def age_of(entry: os.DirEntry[str]) -> float:
    """Return how many seconds ago something in a folder was last made or removed."""
    return time() - entry.stat(follow_symlinks=False).st_mtime


def write(path: str, text: str) -> None:
    """Write a request."""
    with open(path, "xb") as file:
        file.write(text.encode("utf-8", "surrogatepass"))


def read_reply(path: str) -> Any:
    """Return what duet-rpc.el has answered."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return loads(file.read())
    except (OSError, *NOT_JSON):
        raise failed("Emacs left no answer that could be read") from None


class EmacsCaller:
    """Answers what a method asks of Emacs."""

    def __init__(self, server: EmacsServer, about: About) -> None:
        self._server = server
        self._about = about

    def answer(self, question: Question) -> object:
        """Return the answer of Emacs to a question; raise RpcError."""
        return self._server.ask(question.kind, question.params, self._about)
