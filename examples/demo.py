"""Show the main job: one Python function, called from a terminal, as an AI tool and in Emacs.

    python examples/demo.py dist/duet-rpc.pyz [EMACS]

`make run` does this. What is typed and what comes back is printed; then the file is changed,
and the same processes are asked again. Everything happens below a temporary folder, home
directory included, which is removed at the end.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

SOURCE = '''\
from duet_rpc import Region, command

@command(key="C-c w", result="replace")
def sort_words(text: Region) -> str:
    """Sort the words of the region."""
    return " ".join(sorted(text.split()))
'''
BEFORE, AFTER = "sorted(text.split())", "sorted(text.split(), key=len)"

TEXT = "pear fig apple kiwi"

# It reads a text from stdin, calls the command in a buffer with that text, and prints what the
# buffer has then; and so on for the next line.
EMACS_SIDE = """\
(progn
  (setq native-comp-deferred-compilation nil native-comp-jit-compilation nil)
  (load (pop command-line-args-left) nil t)
  (setq duet-rpc-python (pop command-line-args-left))
  (duet-rpc-mode 1)
  (defun demo-wait-until (done)
    (with-timeout (20 (error "Emacs waited for 20 s"))
      (while (not (funcall done)) (accept-process-output nil 0.02))))
  (duet-rpc-reload)
  (demo-wait-until (lambda () (commandp 'sort-words)))
  (princ (format "%s\\n" emacs-version))
  (let (line)
    (while (setq line (ignore-errors (read-string "")))
      (with-temp-buffer
        (insert line)
        (call-interactively 'sort-words)
        (demo-wait-until (lambda () (not (equal (buffer-string) line))))
        (princ (concat (buffer-string) "\\n"))))))
"""


class Peer:
    """A process that is sent lines and answers each of them with a line."""

    def __init__(self, stack: ExitStack, command: list[str], home: Path) -> None:
        self.stderr = stack.enter_context(tempfile.TemporaryFile("w+", dir=home))  # noqa: SIM115
        process = subprocess.Popen(
            command, cwd=home, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr,
        )  # fmt: skip
        # Leaving the block closes its stdin, which ends it, and waits.
        stack.enter_context(process)
        self.process, self.name = process, command[0]

    def send(self, line: str) -> None:
        """Send one line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self) -> str:
        """Return the next line of output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.stderr.seek(0)
            sys.exit(f"{self.stderr.read()}the demonstration failed: {self.name} exited")
        return line.rstrip("\n")


class Client:
    """A minimal MCP client."""

    def __init__(self, stack: ExitStack, command: list[str], home: Path) -> None:
        self.peer = Peer(stack, command, home)
        self.requests = 0
        info = {"name": "demo", "version": "1"}
        start = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        self.request("initialize", start)
        self.peer.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def request(self, method: str, params: object) -> tuple[str, str]:
        """Send a request; return it and its reply as they were on the wire."""
        self.requests += 1
        message = {"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params}
        sent = json.dumps(message)
        self.peer.send(sent)
        reply = self.peer.receive()
        while json.loads(reply).get("id") != self.requests:
            reply = self.peer.receive()  # a notification, such as that the list has changed
        return sent, reply


class Demo:
    """The same function in three places, and what is printed of it."""

    def __init__(self, stack: ExitStack, program: Path, emacs: str | None, home: Path) -> None:
        self.program, self.home = program, home
        methods = home / ".config" / "duet-rpc" / "methods"
        methods.mkdir(parents=True)
        self.file = methods / "words.py"
        self.file.write_text(SOURCE)
        self.client = Client(stack, [sys.executable, str(program), "mcp"], home)
        self.emacs = None
        self.emacs_version = ""
        if emacs:
            library = str(program.with_name("duet-rpc.el"))
            arguments = ["--batch", "-Q", "--eval", EMACS_SIDE, library, sys.executable]
            self.emacs = Peer(stack, [emacs, *arguments], home)
            self.emacs_version = self.emacs.receive()

    def call_everywhere(self) -> None:
        """Call the function in each place, and print what was typed and what came back."""
        print("in a terminal:")
        arguments = ["call", "sort_words", f"text={TEXT}"]
        print(f"  $ {shlex.join([self.program.name, *arguments])}")
        command = [sys.executable, str(self.program), *arguments]
        done = subprocess.run(command, cwd=self.home, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit("the demonstration failed: see above")
        print(f"  {done.stdout}")
        print("as a tool of an AI client, which has started `duet-rpc.pyz mcp`:")
        params = {"name": "sort_words", "arguments": {"text": TEXT}}
        for arrow, text in zip("→←", self.client.request("tools/call", params)):
            print(f"  {arrow} {text}")
        if self.emacs:
            print(f"\nin Emacs {self.emacs_version}, in a buffer with the text {TEXT}:")
            print("  M-x sort-words RET")
            self.emacs.send(TEXT)
            print(f"  {self.emacs.receive()}")
        print(flush=True)

    def change(self) -> None:
        """Save another version of the function."""
        self.file.write_text(SOURCE.replace(BEFORE, AFTER))


def main(program: Path, emacs: str | None) -> None:
    """Run the demonstration with this program, and with this Emacs if there is one."""
    with tempfile.TemporaryDirectory(prefix="duet-rpc-demo-") as folder, ExitStack() as stack:
        for name in list(os.environ):
            if name.startswith(("XDG_", "DUET_RPC_")):
                del os.environ[name]
        os.environ.update(HOME=folder, TMPDIR=folder)
        demo = Demo(stack, program.absolute(), emacs, Path(folder))
        print("A function in ~/.config/duet-rpc/methods/words.py:\n")
        print("".join(f"  {line}\n" for line in SOURCE.splitlines()))
        demo.call_everywhere()
        demo.change()
        print(f"The file is changed and saved, to sort by length: {AFTER}")
        print("Nothing is restarted.\n")
        demo.call_everywhere()
    print("That was in a temporary folder, which is removed. Three lines to type next:\n")
    print(f"  {program} new hello")
    print(f"  {program} call hello text=hi")
    # Without Emacs, the place to try methods out is the console.
    print(f"  emacs -L {program.parent} -l duet-rpc -f duet-rpc-mode" if emacs else
          f"  {program} console")  # fmt: skip
    print("\nthen, in Emacs, M-x hello; README.md goes on from there." if emacs else "")


if __name__ == "__main__":
    found = shutil.which(sys.argv[2]) if len(sys.argv) > 2 else None
    main(Path(sys.argv[1]), found and os.path.abspath(found))
