"""`duet-rpc doctor`: problems with files of methods, and with what they import."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doctor import env, examine, with_fake
from tests.support import PYZ, TOP
from tests.terminal import invoke

__all__ = ["env"]


def test_methods_are_counted_and_load_errors_are_named(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"
    folder.mkdir(parents=True)
    (folder / "good.py").write_text("from duet_rpc import method\n@method\ndef good(): pass\n")
    code, checks = examine(env)
    assert (code, checks["methods"]["detail"]) == (0, "1 loaded")
    (folder / "bad.py").write_text("x = 1\ny = (\n")
    code, checks = examine(env)
    assert code == 1
    assert checks["methods"]["status"] == "fail"
    assert checks["methods"]["detail"].startswith("bad.py:2: SyntaxError")
    assert "fix that line" in checks["methods"]["fix"]


def test_a_worker_that_cannot_start_is_reported_once(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"
    folder.mkdir(parents=True)
    text = "# /// script\n# {}\n# ///\nfrom duet_rpc import method\n@method\ndef {}(): pass\n"
    (folder / "a.py").write_text(text.format("dependancies = []", "a"))
    (folder / "b.py").write_text(text.format('dependencies = ["no-such-package"]', "b"))
    uv = Path(env["PATH"]) / "uv"
    uv.write_text("#!/bin/sh\nexit 3\n")
    uv.chmod(0o755)
    code, out, _ = invoke(["doctor", "--json"], env)
    failed = [each for each in json.loads(out)["checks"] if each["status"] == "fail"]
    assert (code, [each["name"] for each in failed]) == (1, ["worker", "methods"])
    assert failed[0]["detail"].startswith("a.py:2: unknown key 'dependancies'")
    what = "b.py: an environment with no-such-package could not be made: uv failed with exit code 3"
    assert failed[1]["detail"] == f"{what} (a call of one of its methods tries again)"
    assert failed[1]["fix"].endswith("tries again, and shows the end of the installer's output")
    problems = json.loads(invoke(["list", "--json"], env)[1])["problems"]
    assert [each.partition(":")[0] for each in problems] == ["a.py", "b.py"]


def test_a_failed_environment_is_tried_again_by_calls_alone(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"
    folder.mkdir(parents=True)
    block = '# /// script\n# dependencies = ["no-such-package"]\n# ///\n'
    file = folder / "b.py"
    file.write_text(f"{block}from duet_rpc import method\n@method\ndef b(): pass\n")
    tries = Path(env["HOME"]) / "tries"
    uv = Path(env["PATH"]) / "uv"
    uv.write_text(f"#!/bin/sh\necho again >> {tries}\nexit 3\n")
    uv.chmod(0o755)
    for count, command in enumerate(["doctor", "list", "doctor"]):
        out = invoke([command], env)[1]
        assert "could not be made: uv failed with exit code 3 (a call of one of its" in out
        assert ("its environment with no-such-package could not be made" in out) == (count == 2)
        assert tries.read_text() == "again\n"
    code, _, err = invoke(["call", "b"], env)
    assert (code, tries.read_text()) == (1, "again\nagain\n")
    assert "It wrote nothing.\nTry it by hand: uv venv " in err
    # Other requirements are another environment, which may be one that can be made.
    file.write_text(file.read_text().replace("no-such-package", "none-either"))
    assert "none-either could not be made" in invoke(["list"], env)[1]
    assert tries.read_text() == "again\n" * 3


def find_pandas(env: dict[str, str], python: Path | str, module: str = "pandas") -> dict[str, str]:
    """Return the check of a file that imports a module that is not installed."""
    folder = Path(env["HOME"]) / ".config" / "duet-rpc"
    (folder / "methods").mkdir(parents=True, exist_ok=True)
    (folder / "methods" / "bad.py").write_text(f"\nimport {module}\n")
    (folder / "config.toml").write_text(f'[methods]\npython = "{python}"\n' if python else "")
    env["PYTHONPATH"] = os.pathsep.join([str(TOP), *site.getsitepackages()])
    code, checks = examine(env)
    assert code == 1
    check: dict[str, str] = checks["methods"]
    return check


@pytest.mark.parametrize(
    ("module", "package"),
    [("no_such_module", "no_such_module"), ("no_such.part", "no_such"), ("cv2", "opencv-python")],
)
def test_a_missing_module_gets_the_command_that_installs_it(
    env: dict[str, str], module: str, package: str
) -> None:
    check = find_pandas(env, "", module)
    shown = module.partition(".")[0]
    assert check["detail"] == f"bad.py:2 imports '{shown}', which is not installed"
    assert check["fix"] == f"{sys.executable} -m pip install {package}"


def test_the_command_is_for_the_python_that_runs_methods(
    env: dict[str, str], tmp_path: Path
) -> None:
    venv = tmp_path / "a venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    fix = f"that Python has no pip: uv pip install --python '{python}' no_such"
    env["PYTHONPATH"] = ""
    assert find_without_pip(env, python)["fix"] == fix
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "pip.py").write_text("")
    assert find_without_pip(env, python)["fix"] == f"'{python}' -m pip install no_such"


def find_without_pip(env: dict[str, str], python: Path) -> dict[str, str]:
    """Do the same with the .pyz, which needs no package beside it."""
    folder = Path(env["HOME"]) / ".config" / "duet-rpc"
    (folder / "methods").mkdir(parents=True, exist_ok=True)
    (folder / "methods" / "bad.py").write_text("import no_such\n")
    (folder / "config.toml").write_text(f'[methods]\npython = "{python}"\n')
    _, checks = examine(env, [sys.executable, PYZ])
    check: dict[str, str] = checks["methods"]
    return check


def test_where_pip_is_forbidden_the_fix_is_an_environment(
    env: dict[str, str], tmp_path: Path
) -> None:
    python = tmp_path / "python"
    # A Python whose distribution has put the mark of PEP 668 beside its library.
    library = tmp_path / "library"
    library.mkdir()
    (library / "EXTERNALLY-MANAGED").write_text("")
    hook = (
        "import sys, sysconfig; sys.prefix = sys.base_prefix; "
        f"sysconfig.get_path = lambda name: {str(library)!r}"
    )
    (library / "sitecustomize.py").write_text(hook)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{library}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert find_pandas(env, python, "no_such")["fix"] == (
        f"{python} -m venv ~/.local/share/duet-rpc/venv && "
        "~/.local/share/duet-rpc/venv/bin/python -m pip install no_such, "
        'then put python = "~/.local/share/duet-rpc/venv/bin/python" under [methods] into '
        "your configuration"
    )


def test_the_folder_of_methods_is_named(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"
    detail = examine(env)[1]["folder"]["detail"]
    assert detail == f"{folder} does not exist; `python -m duet_rpc new NAME` makes it"
    invoke(["new", "words"], env)
    assert examine(env)[1]["folder"]["detail"] == str(folder)


def test_slow_loading_of_methods_is_no_failure(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text("import time\ntime.sleep(1.5)\n")
    env["TIMEOUT"] = "1"
    words = ["doctor", "--json", "--methods", str(file)]
    code, out, _ = invoke(words, env, None, with_fake("real"))
    assert code == 0
    assert "0 loaded" in out
