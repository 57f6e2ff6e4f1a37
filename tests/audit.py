"""`make audit`: known holes in what is bundled and in what builds and tests it.

python -m tests.audit PIP_AUDIT

pip-audit asks a service for each package. Where that can't be reached, or does not know a
package, nothing was checked, and this says so instead of looking like a pass.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig


def main(pip_audit: str) -> int:
    """Run pip-audit over this environment; 1 where there is a hole."""
    packages = sysconfig.get_path("purelib")
    done = subprocess.run(
        [pip_audit, "--path", packages, "--format", "json", "--progress-spinner", "off"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    try:
        found = json.loads(done.stdout)["dependencies"]
    except ValueError:
        said = done.stderr.strip().splitlines()[-1:] or ["no word of why"]
        print(f"audit SKIPPED, pip-audit did not run: {said[0]}")
        return 0
    skipped = [each["name"] for each in found if "skip_reason" in each]
    holes = [(each["name"], hole["id"]) for each in found for hole in each.get("vulns", [])]
    for name, hole in holes:
        print(f"{name}: {hole}")
    checked = len(found) - len(skipped)
    print(f"{checked} packages audited, {len(holes)} known holes", end="")
    print(f"; {len(skipped)} SKIPPED, the service does not know them" if skipped else "")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
