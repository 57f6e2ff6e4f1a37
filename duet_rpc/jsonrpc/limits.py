"""Every number of the contract, once, so that a reader can check them in one place."""

HEADER_MAX = 8 * 1024
"""Bytes of one header section, its closing empty line included."""

BODY_MAX = 10 * 1024 * 1024
"""Bytes of one body."""

PEEK = 256
"""Bytes of a server's oversized body that are looked at for the id."""

BATCH_MAX = 1000
"""Messages of one batch."""

READ_TIMEOUT = 30.0
"""Seconds from the first byte of a frame to its last."""

GRACE = 2.0
"""Seconds from the reason to leave to the end of the process."""

WORK_WINDOW = 1.4
"""Seconds of these that requests have."""

CLEANUP_WINDOW = 0.2
"""Seconds that a method which was interrupted then, and handlers of `atexit`, have."""

INTAKE_MAX = 4 * BODY_MAX
"""Bytes that are read ahead while a method runs."""

FAREWELL = 0.05
"""Seconds between the reply to `shutdown` and the exit, for a client that stays connected."""

LOG_GRACE = 0.3
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

QUEUE_MAX = 4 * 1024 * 1024
"""Bytes that wait to be written to a backend before requests to it are refused."""

IDS_MAX = BODY_MAX
"""Characters of all ids in flight in the gateway; one id alone may be as long as a body."""

PENDING_MAX = 10_000
"""Requests of one backend that wait for its answer."""

CLIENT_QUEUE_MAX = 1024 * 1024
"""Bytes that wait to be written to the gateway's client before backends are read no more."""

CLIENT_READ_STOP = 8 * CLIENT_QUEUE_MAX
"""Bytes that wait to be written to the gateway's client before it is not read either."""

STDERR_SHOWN_MAX = 2000
"""Characters of a backend's stderr that an error shows."""

REQUEST_TIMEOUT = 300.0
"""Seconds that a backend has for an answer, counted from its last sign of progress."""

ANSWER_TIMEOUT = 3600.0
"""Seconds that the person at an MCP client has for an answer to what a server asks."""

CANCEL_GRACE = 2.0
"""Seconds in which a worker answers a cancel, or says that its method was interrupted."""

RESTART_DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before a backend that died is started again; after the last it has failed."""

STABLE = 60.0
"""Seconds after which a backend's earlier deaths are forgotten."""

START_TIMEOUT = 60.0
"""Seconds that a backend has for its handshake."""

LIST_TIMEOUT = 3.0
"""Seconds that a merged list waits for the backends that have not said what they have."""

LIST_AT_ONCE = 0.2
"""Seconds that an MCP client's list waits for servers; what was kept stands in for the rest."""

LAST_REPLIES = 0.4
"""Seconds that a gateway waits for replies once its input has ended."""

TERM_AFTER = 0.55
"""Seconds between the end of a backend's input and SIGTERM."""

KILL_AFTER = 0.95
"""Seconds between the end of a backend's input and SIGKILL."""

DRAIN_MAX = 1.0
"""Seconds for what a backend that has exited left in its pipe."""

STDERR_LINES = 20
"""Lines of a backend's stderr that are kept to be shown."""

STDERR_RATE = 100
"""Lines of a backend's stderr that are logged in one second."""
