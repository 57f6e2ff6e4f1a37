"""Every number of the contract, once, so that a reader can check them in one place."""

HEADER_MAX = 8 * 1024
"""Bytes of one header section, its closing empty line included."""

BODY_MAX = 10 * 1024 * 1024
"""Bytes of one body."""

BATCH_MAX = 1000
"""Messages of one batch."""

READ_TIMEOUT = 30.0
"""Seconds from the first byte of a frame to its last."""

GRACE = 2.0
"""Seconds that a running request has once the daemon has been asked to leave."""

FAREWELL = 0.05
"""Seconds between the reply to `shutdown` and the exit, for a client that stays connected."""

LOG_GRACE = 0.5
"""Seconds that the last log lines may take on the way out."""

LOG_FILE_MAX = 10 * 1000 * 1000
"""Bytes of a log file before it is rotated."""

LOG_FILES_KEPT = 2
"""Old log files that stay beside the current one."""

LOG_VALUE_MAX = 200
"""Characters of a value from the client that a log line shows."""

RECEIVED_MAX = 80
"""Characters of a refused string that an error's data shows."""

INTEGER_DIGITS_MAX = 4300
"""Digits of an integer: CPython's own default; beyond it conversion time is quadratic."""
