"""Files that become workers, change and stop being some; their configuration and environments."""

from __future__ import annotations

from pathlib import Path

from tests.gateway import GatewayClient
from tests.method_files import env_for, write
from tests.support import SOURCE, TRIES, request
from tests.terminal import is_gone
from tests.workers import (
    BLOCK,
    HEAD,
    made_with_uv,
    names,
    plain_file,
    rpc,
    status,
    worker_file,
)

__all__ = ["made_with_uv"]


# Files that change.


def test_a_listed_method_moves_between_main_and_workers(tmp_path: Path, folder: Path) -> None:
    """A list has told the router whose methods they are; that is no longer so after a save."""
    write(folder, worker_file("other"), "other.py")
    write(folder, plain_file("stays"), "stays.py")
    write(folder, plain_file("moves"), "moves.py")
    with rpc(tmp_path) as client:
        assert "moves_pid" in names(client)
        main = client.call("stays_pid")
        assert client.call("moves_pid") == main
        write(folder, worker_file("moves"), "moves.py")
        assert client.call("moves_pid") != main
        write(folder, plain_file("moves"), "moves.py")
        assert client.call("moves_pid") == main
        names(client)
        (folder / "moves.py").unlink()
        write(folder, worker_file("moves"), "again.py")
        assert client.call("moves_pid") != main


def test_a_changed_block_restarts_only_its_own_worker(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b"), "b.py")
    write(folder, worker_file("c"), "c.py")
    with rpc(tmp_path) as client:
        before = client.call("b_pid"), client.call("c_pid")
        write(folder, worker_file("b", "def new() -> int: return 1\n"), "b.py")
        assert client.call("new") == 1
        assert client.call("b_pid") == before[0], "it was loaded again, with all it had imported"
        other = worker_file("b", "def new() -> int: return 2\n")
        write(folder, other.replace("script\n", 'script\n# requires-python = ">=3.9"\n'), "b.py")
        assert client.call("new") == 2
        assert client.call("b_pid") != before[0]
        assert client.call("c_pid") == before[1]


def test_a_worker_outlives_a_look_while_its_file_is_saved(tmp_path: Path, folder: Path) -> None:
    path = write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        pids = [client.call("b_pid")]
        for _ in range(TRIES):  # on a busy machine saving may take longer than is allowed for
            with path.open("w") as emptied:
                client.call("listMethods")
                emptied.write(worker_file("b"))
            pids.append(client.call("b_pid"))
        assert any(one == next for one, next in zip(pids, pids[1:]))


def test_files_become_workers_and_stop_being_some(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    write(folder, plain_file("b"), "b.py")
    write(folder, worker_file("c"), "c.py")
    with rpc(tmp_path) as client:
        main = client.call("a_pid")
        assert client.call("b_pid") == main
        write(folder, worker_file("b"), "b.py")
        worker = client.call("b_pid")
        assert worker not in (main, client.call("c_pid"))
        write(folder, plain_file("b"), "b.py")
        assert client.call("b_pid") == main
        assert is_gone(worker)
        (folder / "c.py").unlink()
        assert client.ask("c_pid")["error"]["code"] == -32601
        assert names(client) == ["a_pid", "a_sleep", "b_pid", "b_sleep"]


def test_two_workers_with_the_same_method_are_reported_once(tmp_path: Path, folder: Path) -> None:
    for name in ("b", "c"):
        write(folder, worker_file(name, "def same() -> str: return __name__\n"), f"{name}.py")
    with rpc(tmp_path) as client:
        for _ in range(3):
            assert names(client).count("same") == 1
        log = (tmp_path / "log").read_text()
        assert log.count("c.py: same is already the name of a method of worker b.py") == 1


def test_a_list_starts_no_worker_whose_methods_are_known(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        assert names(client) == ["b_pid", "b_sleep"]
    with rpc(tmp_path) as client:
        assert names(client) == ["b_pid", "b_sleep"]
        assert status(client)["b.py"]["state"] == "stopped"
        (folder / "b.py").write_text(worker_file("b", "def more() -> int: return 1\n"))
        assert names(client) == ["b_pid", "b_sleep", "more"], "but a changed one is asked"


def test_a_call_starts_the_one_worker_that_it_needs(tmp_path: Path, folder: Path) -> None:
    for name in "bcd":
        write(folder, worker_file(name), f"{name}.py")
    with rpc(tmp_path) as client:
        assert client.call("c_pid")
        states = {name: each["state"] for name, each in status(client).items()}
        assert states == {"b.py": "stopped", "c.py": "ready", "d.py": "stopped"}


def test_reload_reaches_all_workers_and_a_file_can_be_added(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    write(
        folder,
        worker_file("b") + "begun = time.time()\n" + "@method\ndef when() -> float: return begun\n",
        "b.py",
    )
    more = write(tmp_path / "more", worker_file("m"), "m.py")
    with rpc(tmp_path) as client:
        before = client.call("when")
        assert set(client.call("reloadMethods")) == {"methods", "problems"}
        assert client.call("when") > before
        loaded = client.call("loadMethods", {"file": str(more)})
        assert "m_pid" in loaded["methods"]
        assert client.call("m_pid") not in (client.call("a_pid"), client.call("b_pid"))
        assert client.ask("loadMethods", {"file": "m.py"})["error"]["code"] == -32602


# The configuration.


def test_a_configured_worker_has_its_variables_folder_and_memory(
    tmp_path: Path, folder: Path
) -> None:
    more = "def where() -> list[str]: return [os.getcwd(), os.environ['A']]\n"
    more += "@method\ndef large() -> int: return len(bytearray(2 * 10**9))\n"
    file = write(tmp_path / "other", plain_file("b", more), "b.py")
    config = f'[workers.big]\nmethods = ["{file}"]\ncwd = "{tmp_path}"\nmemory = "1G"\n'
    config += 'env = { A = "x" }\n'
    write(folder, plain_file("a"), "a.py")
    with rpc(tmp_path, "--debug", config=config) as client:
        assert client.call("where") == [str(tmp_path), "x"]
        assert client.ask("large")["error"]["data"]["type"] == "MemoryError"
        assert client.call("where")[1] == "x", "and it goes on"
        assert client.call("a_pid") != client.call("b_pid")
        assert sorted(status(client)) == ["big", "main"]


def test_a_project_without_trust_starts_no_worker(tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(project, plain_file("b"), "b.py")
    (project / ".duet-rpc.toml").write_text('[workers.w]\nmethods = ["b.py"]\n')
    client = GatewayClient(
        [*SOURCE, "rpc"], {**env_for(tmp_path), "DUET_RPC_LOG": str(tmp_path / "log")}, cwd=project
    )
    try:
        assert client.ask("b_pid")["error"]["code"] == -32601
        assert (
            "[workers] of the project's .duet-rpc.toml is skipped" in (tmp_path / "log").read_text()
        )
    finally:
        client.finish()


# Environments.


def test_a_worker_has_packages_that_nobody_else_has(
    tmp_path: Path, folder: Path, made_with_uv: dict[str, str]
) -> None:
    text = BLOCK.replace("script\n", 'script\n# dependencies = ["tabulate"]\n') + HEAD
    text += "@method\ndef table() -> str:\n    import tabulate\n"
    text += "    return tabulate.tabulate([['a']])\n"
    write(folder, text, "tables.py")
    write(
        folder,
        plain_file("a", "def other() -> bool:\n    import tabulate\n    return True\n"),
        "a.py",
    )
    with rpc(tmp_path, **made_with_uv) as client:
        params = {"_meta": {"progressToken": 1}}
        client.send(request(1, "table", params) + request(2, "a_pid"))
        assert client.receive()["id"] == 2, "nobody waits for an installer"
        assert "a" in client.receive()["result"]
        assert client.ask("other")["error"]["code"] == -32603
        assert "envs" in status(client)["tables.py"]["python"]


def test_a_failed_environment_is_explained_to_every_caller(
    tmp_path: Path, folder: Path, made_with_uv: dict[str, str]
) -> None:
    bad = BLOCK.replace("script\n", 'script\n# dependencies = ["no-such-package-of-ours"]\n')
    write(folder, bad + plain_file("b"), "b.py")
    write(folder, plain_file("a"), "a.py")
    with rpc(tmp_path, **made_with_uv) as client:
        for _ in range(2):
            error = client.ask("b_pid")["error"]
            assert (error["code"], error["data"]["reason"]) == (-32803, "environment")
            assert "b.py: " in error["message"]
            assert "no-such-package-of-ours" in error["message"]
        (problem,) = client.call("reloadMethods")["problems"]
        assert problem.startswith("b.py: an environment with no-such-package-of-ours could not be ")
        assert "\n" not in problem
        assert "result" in client.ask("a_pid")
        write(folder, BLOCK + plain_file("b"), "b.py")
        assert "result" in client.ask("b_pid"), "it heals with the file"
        assert client.call("reloadMethods")["problems"] == []


def test_a_wrong_block_is_explained_with_its_line(tmp_path: Path, folder: Path) -> None:
    write(folder, "# /// script\n# dependencies = 1\n# ///\n" + plain_file("b"), "b.py")
    with rpc(tmp_path) as client:
        what = 'b.py:2: dependencies must be a list of strings, such as ["pandas>=2", "requests"]'
        assert what in client.ask("b_pid")["error"]["message"]
        assert client.call("reloadMethods")["problems"] == [what]
