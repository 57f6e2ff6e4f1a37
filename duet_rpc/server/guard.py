"""The one door through which code that is not ours is entered.

Methods, the checks of their parameters, the loading of files, hooks, the text of an exception:
all of it is run here, where it can be cancelled, is bounded by the shutdown deadline, and ends
in a result or a refusal, whatever it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.failures import explain, name_of
from duet_rpc.server.cancellation import Cancellation
from duet_rpc.server.dispatch import CANCELLED, Refused, call, refuse
from duet_rpc.server.method_output import MethodOutput

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from duet_rpc.log import Log


class Guard:
    """Runs the user's code."""

    def __init__(self, log: Log, explains: bool) -> None:
        self.cancellation = Cancellation()
        self.output = MethodOutput(log, self.cancellation.hold)
        self.supervisor: AbstractContextManager[None]
        self._explains = explains  # to the author, what was raised

    def run(self, function: Callable[..., str], *arguments: object) -> str | Refused:
        """Call a function that returns JSON text; return that, or why there is none."""
        if self.cancellation.requested:  # before it began
            return Refused(CANCELLED)
        with self.supervisor:
            result = call(self.cancellation.run, refuse, function, *arguments)
            while not self.cancellation.restored:  # an alarm of the method's came in between
                call(self.cancellation.restore)
            if isinstance(result, Refused) and result.cause is not None and self._explains:
                result.details = self._explain(result.cause)
        self.output.finish()
        return result

    def _explain(self, cause: BaseException) -> dict[str, str]:
        """Return all that can be said of an exception, which may be the user's code, too."""
        explained: dict[str, str] = {"type": name_of(cause)}

        def run() -> str:
            explained.update(explain(cause))
            return ""

        call(self.cancellation.run, run)
        return explained

    def take_logging(self) -> None:
        """Take what is logged through `logging`; it has handlers of theirs to look at."""
        call(self.cancellation.run, self.output.take_logging)
