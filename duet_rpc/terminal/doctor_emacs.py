"""The checks of the doctor: Emacs, its jsonrpc.el, and duet-rpc.el beside the .pyz."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.program import archive_path
from duet_rpc.terminal.doctor_checks import FAIL, OK, WARN, Check, dotted, numbers, output_of

if TYPE_CHECKING:
    from collections.abc import Iterator

EMACS_MIN = (28, 1)
EMACS_TIMEOUT = 10.0

# Prints the version of Emacs and of the jsonrpc.el it would load: the bundled one or a newer
# one that the user has installed. No file of the user's is loaded.
EMACS_PROGRAM = """(progn
  (princ (format "emacs %s\\n" emacs-version))
  (when (require 'jsonrpc nil t)
    (require 'package)
    (ignore-errors (package-load-all-descriptors))
    (let ((installed (cadr (assq 'jsonrpc package-alist)))
          (bundled (cdr (assq 'jsonrpc package--builtin-versions))))
      (princ (format "jsonrpc %s\\n"
                     (package-version-join
                      (if (and installed
                               (version-list-< bundled (package-desc-version installed)))
                          (package-desc-version installed)
                        (or bundled '(0)))))))))"""


def check_emacs() -> Iterator[Check]:
    """Check the versions of Emacs and its jsonrpc.el."""
    path = shutil.which("emacs")
    need = dotted(EMACS_MIN)
    if path is None:
        fix = f"install Emacs {need} or later, or add its folder to PATH"
        yield Check("Emacs", WARN, "no emacs on PATH", fix)
        return
    output = output_of([path, "-Q", "--batch", "--eval", EMACS_PROGRAM], EMACS_TIMEOUT)
    if output is None:
        detail = f"{path} did not answer within {EMACS_TIMEOUT:g} s"
        yield Check("Emacs", FAIL, detail, "check that `emacs -Q --batch` exits by itself")
        return
    found = dict(row.split(" ", 1) for row in output.splitlines() if " " in row)
    version = numbers(found.get("emacs"))
    if not version:
        detail = f"{path} does not print its version"
        yield Check("Emacs", FAIL, detail, "check what `emacs -Q --batch --version` prints")
        return
    detail = f"{found['emacs']}, {path}"
    if version < EMACS_MIN:
        yield Check("Emacs", FAIL, detail, f"install Emacs {need} or later")
    else:
        yield Check("Emacs", OK, detail)
    if "jsonrpc" in found:
        yield Check("jsonrpc.el", OK, found["jsonrpc"])
    else:
        fix = "reinstall Emacs with all its Lisp files, or M-x package-install jsonrpc"
        yield Check("jsonrpc.el", FAIL, "Emacs cannot load it", fix)


def check_elisp() -> Iterator[Check]:
    """Check that duet-rpc.el beside the .pyz is of the same release."""
    archive = archive_path()
    if archive is None:
        return
    path = os.path.join(os.path.dirname(archive), "duet-rpc.el")
    if not os.path.exists(path):  # the .pyz may be a link; look beside its target
        path = os.path.join(os.path.dirname(os.path.realpath(archive)), "duet-rpc.el")
    fix = f"put the duet-rpc.el of release {__version__} there"
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            head = file.read(4096)
    except FileNotFoundError:
        yield Check("duet-rpc.el", WARN, f"{path} not found", fix)
        return
    except OSError as error:
        yield Check("duet-rpc.el", FAIL, f"{path} cannot be read: {error.strerror}", fix)
        return
    version = re.search(r"^;; (?:Package-)?Version: *(\S+)", head, re.MULTILINE)
    if version is None:
        yield Check("duet-rpc.el", FAIL, f"{path} has no version line", fix)
    elif version.group(1) != __version__:
        detail = f"{path} is {version.group(1)}, the .pyz is {__version__}"
        yield Check("duet-rpc.el", FAIL, detail, fix)
    else:
        yield Check("duet-rpc.el", OK, f"{version.group(1)}, {path}")
