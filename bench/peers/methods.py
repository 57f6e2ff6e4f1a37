"""The user's methods, for duet-rpc; the peers have handlers that do the same."""

from typing import Any

from duet_rpc import method


@method
def count(text: str, word: str, limit: int) -> int:
    """Count a word in a text, up to a limit."""
    return min(text.count(word), limit)


@method
def tally(records: list[dict[str, Any]]) -> int:
    """Count records."""
    return len(records)
