"""Run the region with the program for its language, and show what it prints."""

import subprocess
import sys

from duet_rpc import MajorMode, Region, RpcError, Text, command

PROGRAMS = {
    "python": [sys.executable, "-"],
    "sh": ["sh", "-s"],
    "js": ["node", "-"],
    "ruby": ["ruby", "-"],
    "perl": ["perl", "-"],
}


@command(key="C-c r", destructive=True)
def run_region(text: Region, mode: MajorMode) -> Text:
    """Run the region as a script in the language of the buffer; C-g stops it."""
    language = mode.replace("-ts", "").replace("-mode", "").replace("bash", "sh")
    if language not in PROGRAMS:
        raise RpcError(-32001, f"Nothing is known that runs the text of a buffer in {mode}")
    try:
        done = subprocess.run(PROGRAMS[language], input=text, capture_output=True, text=True)
    except FileNotFoundError:
        raise RpcError(-32001, f"{PROGRAMS[language][0]} is not installed") from None
    code = f"exit code {done.returncode}\n" if done.returncode else ""
    return Text(done.stdout + done.stderr + code or "(no output)\n")
