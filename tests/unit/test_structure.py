"""The house stays in shape: who may import whom, and what the start does without."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.support import TOP, request


def imports_of(folder: str) -> set[str]:
    found = set()
    for path in (TOP / "duet_rpc" / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
    return found


def test_protocol_imports_nothing_of_the_rest() -> None:
    ours = {name for name in imports_of("protocol") if name.startswith("duet_rpc")}
    assert ours == {name for name in ours if name.startswith("duet_rpc.jsonrpc")}
    assert not {"os", "time", "select", "loguru"} & imports_of("protocol")


def test_methods_know_no_wire() -> None:
    assert not {name for name in imports_of("methods") if "server" in name or "framing" in name}


def loaded_at_the_first_reply(method: str = "version", *flags: str) -> set[str]:
    code = (
        "import sys, os; sys.argv[:1] = ['duet-rpc', 'rpc']\n"
        "from duet_rpc.server import stdio\n"
        "def look(self, data):\n"
        "    os.write(2, ' '.join(sys.modules).encode()); os._exit(0)\n"
        "stdio.Stdio.write = look\n"
        "from duet_rpc.cli import main; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *flags],
        input=request(1, method),
        capture_output=True,
        cwd=TOP,
        timeout=20,
        check=True,
    )
    return set(done.stderr.decode().split())


def test_the_way_to_the_first_reply_loads_nothing_heavy() -> None:
    loaded = loaded_at_the_first_reply()
    assert "duet_rpc.server.daemon" in loaded
    heavy = {"loguru", "dataclasses", "argparse", "inspect", "tomllib", "tomli", "datetime",
             "subprocess", "asyncio"}  # fmt: skip
    assert not heavy & loaded
    assert not [name for name in loaded if name.startswith("duet_rpc.gateway")]


def test_the_way_to_a_method_of_the_users_loads_what_that_needs_and_no_more() -> None:
    loaded = loaded_at_the_first_reply("system.ping", "--methods", "system")
    assert "duet_rpc.methods.schema" in loaded
    assert not {"loguru", "dataclasses", "pathlib", "asyncio"} & loaded


def test_what_is_read_in_the_middle_of_other_code_finds_its_modules_loaded() -> None:
    # A look at the input can come in the middle of an import; what it needs itself must not
    # be half imported then.
    code = (
        "import sys, os; sys.argv = ['duet-rpc', 'rpc', '--methods', 'system']\n"
        "from duet_rpc.server import lifecycle\n"
        "def look(self):\n"
        "    os.write(2, ' '.join(sys.modules).encode()); os._exit(0)\n"
        "lifecycle.Lifecycle.__enter__ = look\n"
        "from duet_rpc.cli import main; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        input=request(1, "system.ping"),
        capture_output=True,
        cwd=TOP,
        timeout=20,
        check=True,
    )
    loaded = set(done.stderr.decode().split())
    assert {"re", "json.decoder", "duet_rpc.jsonrpc.broken", "duet_rpc.jsonrpc.large"} <= loaded
    assert "duet_rpc.methods.loading" not in loaded
