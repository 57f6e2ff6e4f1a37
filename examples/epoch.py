"""What time is 1700000000? With point on the number, in seconds or milliseconds."""

from datetime import datetime, timezone

from duet_rpc import RpcError, SymbolAtPoint, command

MILLISECONDS = 100_000_000_000  # as seconds, that is the year 5138


@command(key="C-c u", result="message", read_only=True)
def show_time(number: SymbolAtPoint) -> str:
    """Show the Unix time at point as a date, here and in UTC."""
    try:
        seconds = float(number)
        time = datetime.fromtimestamp(
            seconds / 1000 if abs(seconds) >= MILLISECONDS else seconds, timezone.utc
        )
    except (ValueError, OverflowError):
        raise RpcError(-32001, f"{number!r} is not a Unix time") from None
    return f"{time.astimezone():%Y-%m-%d %H:%M:%S %Z} ({time:%Y-%m-%d %H:%M:%S} UTC)"
