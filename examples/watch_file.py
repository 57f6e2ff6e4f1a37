"""Watch files that other programs write, such as logs and results, and show what is new."""

import os
import threading

from duet_rpc import FileName, command, notify, on_stop

watched: dict[str, float] = {}
stopped = threading.Event()


def look() -> None:
    """Tell the client of files that have changed, as long as there are any to watch."""
    while watched and not stopped.wait(0.5):
        for file, before in list(watched.items()):
            now = os.path.getmtime(file) if os.path.exists(file) else before
            if now != before:
                watched[file] = now
                notify("file-changed", {"file": file})  # Emacs reverts a buffer that visits it


@command(result="message")
def watch_file(file: FileName) -> str:
    """Reload this buffer whenever its file changes on disk; once more to stop that."""
    if watched.pop(file, None) is not None:
        return f"{file} is not watched any more"
    watched[file] = os.path.getmtime(file)
    if len(watched) == 1:
        threading.Thread(target=look, daemon=True).start()
    return f"{file} is watched"


@on_stop
def stop() -> None:
    """End the thread, also when this file is loaded again."""
    stopped.set()
