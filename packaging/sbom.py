"""The software bill of materials of a release, as CycloneDX: what is in the .pyz, and its hashes.

It has neither a time nor a random number, so that two builds of one commit make the same file.
"""

from __future__ import annotations

import json
import re
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

BUNDLED = Path(__file__).with_name("bundled.txt")
LINE = re.compile(
    r"(?P<name>[\w-]+)==(?P<version>\S+) --hash=sha256:(?P<sha256>\w+) # (?P<licence>.+)"
)
OURS = "pkg:pypi/duet-rpc"


class Package(NamedTuple):
    """A package in the .pyz. The hash is that of its wheel, if it was installed from one."""

    name: str
    version: str
    licence: str
    sha256: str = ""

    @property
    def purl(self) -> str:
        """The package's URL (https://github.com/package-url)."""
        return f"pkg:pypi/{self.name}@{self.version}"

    def component(self) -> dict[str, object]:
        """Return its entry in the list of components."""
        hashes = [{"alg": "SHA-256", "content": self.sha256}] if self.sha256 else []
        return {
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "purl": self.purl,
            "licenses": [{"expression": self.licence}],
            **({"hashes": hashes} if hashes else {}),
        }


def list_packages() -> list[Package]:
    """Return what is in the .pyz beside duet-rpc: the pinned wheels, and shiv's bootstrap."""
    found = [match.groupdict() for match in LINE.finditer(BUNDLED.read_text())]
    wheels = [Package(**each) for each in found]
    return [*wheels, Package("shiv", version("shiv"), "BSD-2-Clause")]


def make_sbom(ours: str, pyz_sha256: str) -> str:
    """Return the document, for our version and the hash of the .pyz."""
    packages = list_packages()
    purl = f"{OURS}@{ours}"
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{purl}#{pyz_sha256}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl,
                "name": "duet-rpc",
                "version": ours,
                "purl": purl,
                "licenses": [{"expression": "MIT"}],
                "hashes": [{"alg": "SHA-256", "content": pyz_sha256}],
            }
        },
        "components": [package.component() for package in packages],
        "dependencies": [{"ref": purl, "dependsOn": [package.purl for package in packages]}],
    }
    return json.dumps(document, indent=2) + "\n"
