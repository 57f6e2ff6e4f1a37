"""One small tool, as a method of duet-rpc."""

from duet_rpc import method


@method
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
