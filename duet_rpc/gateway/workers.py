"""The workers of the router, and which of them has which method.

What a worker's methods are it tells itself when it runs. Until then it is known from the last
time, if the file is still the same, or from the text of the file: a call starts the worker that
it needs and no other. Everything else that is not built in goes to `main`, which looks for new
files itself.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from duet_rpc.environments.requirements import NOT_MADE
from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.kept import Kept
from duet_rpc.gateway.pending import Call
from duet_rpc.gateway.state import State
from duet_rpc.gateway.wire import raw
from duet_rpc.gateway.worker import Worker
from duet_rpc.jsonrpc.errors import REQUEST_FAILED, TITLES
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.messages import Failure, Success
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.methods.changes import changed_at, read
from duet_rpc.workers.declared import declared_in
from duet_rpc.workers.order import LOADED, MAIN, METHODS, read_order, why_not_prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from duet_rpc.config.processes import WorkerSettings
    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.gateway.runtime import Runtime
    from duet_rpc.workers.plan import Plan

    Entry = dict[str, object]

RETRY = "a call of one of its methods tries again"


class Known:
    """What is known of the methods of one worker."""

    def __init__(self, block: str | None) -> None:
        self.block = block  # that the worker was started with
        self.entries: list[Entry] | None = None  # None: nothing yet
        self.files: dict[str, str | None] = {}  # of these methods
        self.problems: list[str] = []
        self.declared: set[str] = set()  # names in the texts of its files,
        self.times: list[int | None] | None = None  # which were changed then
        self.is_complete = True  # there are no others, as far as the texts show
        self.requests: dict[int, str] = {}  # by which it is being asked, and their method
        self.waiting: list[Waiting] = []  # for its answer


class Workers:
    """The workers by name, and their methods."""

    def __init__(
        self,
        plan: Plan,
        backends: dict[str, Backend],
        make: Callable[[WorkerSettings], Worker],
        fresh_id: Callable[[], int],
        runtime: Runtime,
    ) -> None:
        self._plan = plan
        self._backends = backends  # of the gateway, with the workers among them
        self._make = make
        self._fresh_id = fresh_id
        self._runtime = runtime
        self._workers: dict[str, Worker] = {}
        self._known: dict[str, Known] = {}
        self._owners: dict[str, Worker] = {}  # by method
        self._reported: set[str] = set()
        self.version = 0  # another one whenever the methods are others
        self.on_change: Callable[[], object] = lambda: None
        self.scan()

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._workers.values()))

    def __bool__(self) -> bool:
        return bool(self._workers)

    # Which workers there are.

    def scan(self) -> None:
        """Bring the workers up to date with the files."""
        found = self._plan.find()
        for name in [*self._workers]:
            if name not in found:
                self._remove(name)
        for name, (settings, block) in found.items():
            known = self._known.get(name)
            if known is None:
                self._add(settings, block)
            elif known.block != block:
                known.block = block
                self._workers[name].restart_when_idle()
        for name, worker in self._workers.items():
            self._read_text(name, worker)
        main = self._known.get(MAIN)
        if main is not None and main.entries is not None:
            main.entries = [each for each in main.entries if self._is_mains(_file_of(each))]
        self._publish()

    def _add(self, settings: WorkerSettings, block: str | None) -> None:
        worker = self._make(settings)
        self._workers[worker.name] = self._backends[worker.name] = worker
        self._known[worker.name] = Known(block)

    def _remove(self, name: str) -> None:
        worker = self._workers.pop(name)
        del self._known[name]
        worker.process.stop(lambda: self._forget(worker))

    def _forget(self, worker: Worker) -> None:
        if self._backends.get(worker.name) is worker:
            del self._backends[worker.name]

    def _read_text(self, name: str, worker: Worker) -> None:
        """Learn what the files of a worker say of its methods, where they have changed."""
        known = self._known[name]
        files = [each for each in worker.settings.methods if each.startswith("/")]
        times = [changed_at(each) for each in files]
        if name == MAIN or known.times == times:
            return
        known.times = times
        declared = [declared_in(each) for each in files]
        known.declared = {name for each in declared for name in each.names}
        known.is_complete = len(files) == len(worker.settings.methods) and all(
            each.is_complete for each in declared
        )
        if worker.process.child is not None:
            return  # it tells what it has itself
        known.entries = None
        stamp = self._stamp(worker)
        kept = None if stamp is None else Kept(worker.settings.methods[0]).read(stamp)
        if isinstance(kept, list):
            known.entries = [each for each in kept if isinstance(each, dict)]

    def _stamp(self, worker: Worker) -> str | None:
        """Return what a kept list must have been made from; None where nothing is kept."""
        if worker.name == MAIN or len(worker.settings.methods) != 1:
            return None
        text = read(worker.settings.methods[0])
        return None if text is None else sha256(text).hexdigest()

    def add_source(self, path: str) -> None:
        """Add a file of methods, for as long as this process runs."""
        self._plan.add_source(path)

    # Who has a method.

    def find(self, method: str) -> Worker | None:
        """Return the worker that a method belongs to, or may belong to."""
        worker = self._owners.get(method)
        if worker is None or not self._is_current(worker, method):
            self.scan()
            worker = self._owners.get(method) or self._workers.get(MAIN)
            if worker is not None and self._known[worker.name].entries is None:
                # Behind the call: after that, one look at the method's file is enough.
                self._runtime.loop.call_soon(lambda: self._ask_once(worker))
        return worker

    def may_have(self, method: str) -> bool:
        """Return whether a worker that has not told its methods may have one that nobody has."""
        return (
            method not in self._owners
            and any(
                known.entries is None and not known.is_complete for known in self._known.values()
            )
            and not any(method in declared_in(each).names for each in self._plan.plain_files())
        )

    def _is_current(self, worker: Worker, method: str) -> bool:
        """Return False where a file has become a worker, or is one no more, or another."""
        if worker.name != MAIN:
            blocks = {self._plan.scripts.block_of(each) for each in worker.settings.methods}
            return self._known[worker.name].block in (None, *blocks)
        return self._is_mains(self._known[MAIN].files.get(method))

    def _is_mains(self, file: str | None) -> bool:
        """Return False for the file of a method that is gone, or has become a worker."""
        return file is None or self._plan.scripts.is_plain(file)

    def entries(self) -> list[tuple[str, Entry]]:
        """Return what is known of all methods, each once, with its worker's name."""
        return [
            (name, entry)
            for name, known in self._known.items()
            for entry in known.entries or ()
            if self._owners.get(str(entry.get("name"))) is self._workers[name]
        ]

    def problems(self) -> list[str]:
        """Return what is wrong with the user's files."""
        return [each for known in self._known.values() for each in known.problems]

    def _publish(self) -> None:
        owners: dict[str, Worker] = {}
        for name, known in self._known.items():
            known.files.clear()
            for entry in known.entries or ():
                method = str(entry.get("name"))
                known.files[method] = _file_of(entry)
                other = owners.setdefault(method, self._workers[name])
                if other is not self._workers[name]:
                    self._report(name, method, other)
        for name, known in self._known.items():
            for method in known.declared:
                owners.setdefault(method, self._workers[name])
        if owners != self._owners:
            self._owners = owners
            self.version += 1

    def _report(self, name: str, method: str, other: Worker) -> None:
        text = f"{name}: {method} is already the name of a method of {other.title}"
        if text not in self._reported:
            self._reported.add(text)
            self._runtime.log.warn(text)

    # What the workers say of their methods.

    def collect(
        self, waiting: Waiting, seconds: float, reload: bool = False, load: str | None = None
    ) -> None:
        """Let somebody wait until all workers have described their methods, or time is up.

        They are to load everything again first, or one more file. One that is busy is not waited
        for without that, and one that has not been started is not, where its methods are known:
        then nothing has changed.
        """
        self.scan()
        is_mains = load is not None and not self._plan.scripts.is_script(load)
        for name, worker in self._workers.items():
            known = self._known[name]
            is_known = known.entries is not None
            file = load if name == MAIN and is_mains else None
            is_wanted = reload or file is not None
            if is_known and not (worker.is_idle or (is_wanted and worker.state is State.READY)):
                continue
            if not is_known and (worker.refusal() is not None or self._has_failed(worker)):
                continue
            waiting.count += 1
            known.waiting.append(waiting)
            if is_wanted or METHODS not in known.requests.values():
                self._ask(worker, METHODS, reload, file)
        if waiting.count:
            self._runtime.loop.call_later(seconds, waiting.finish)
        else:
            waiting.finish()

    def give_up(self, waiting: Waiting) -> None:
        """Interrupt the workers that load their files for nobody else."""
        waiting.cancel()
        for name, known in self._known.items():
            if waiting in known.waiting:
                known.waiting = [each for each in known.waiting if not each.is_over]
                while known.requests and not known.waiting:
                    self._workers[name].cancel(known.requests.popitem()[0])

    def _has_failed(self, worker: Worker) -> bool:
        """Return whether its environment could not be made, and to try again is up to a call."""
        if worker.process.child is not None:
            return False
        failure = why_not_prepared(read_order(worker.settings.env))
        if failure is not None:
            self._known[worker.name].problems = [_shorten(failure)]
        return failure is not None

    def _ask_once(self, worker: Worker) -> None:
        """Ask a worker for its methods if they are not known, and it runs for another reason.

        One that speaks MCP is asked for its lists, by `ServerLists`.
        """
        known = self._known.get(worker.name)
        if worker.dialect is MCP or worker.process.child is None:
            return
        if known is not None and known.entries is None:
            self.handle_changed(worker)

    def handle_changed(self, worker: Worker) -> None:
        """Ask a worker again whose methods are others now.

        It has loaded them; were it to look at its files again, that might never end, and nobody
        would be there to cancel it.
        """
        known = self._known.get(worker.name)
        if known is not None and not known.requests:
            self._ask(worker, LOADED)

    def _ask(
        self, worker: Worker, method: str, reload: bool = False, load: str | None = None
    ) -> None:
        known = self._known[worker.name]
        id = self._fresh_id()
        known.requests[id] = method
        params: dict[str, object] = {"reload": True} if reload else {}
        if load is not None:
            params["load"] = load

        def receive(outcome: Outcome) -> None:
            del known.requests[id]
            if isinstance(outcome, Success) and isinstance(outcome.result, RawJson):
                self._learn(worker, known, outcome.result.value)
            elif known.entries is None and isinstance(outcome, Failure):
                known.problems = [_shorten(outcome.error.message)]
            if known.requests:
                return  # somebody has asked for more since
            waiting, known.waiting = known.waiting, []
            for each in waiting:
                each.count_down()

        worker.request(id, Call(method, receive), raw(dumps(params)))

    def _learn(self, worker: Worker, known: Known, value: object) -> None:
        entries = value.get("methods") if isinstance(value, dict) else None
        problems = value.get("problems") if isinstance(value, dict) else None
        if not isinstance(entries, list) or self._known.get(worker.name) is not known:
            return
        known.problems = [str(each) for each in problems] if isinstance(problems, list) else []
        if entries == known.entries:
            return
        known.entries = entries
        stamp = self._stamp(worker)
        if stamp is not None and not known.problems:
            Kept(worker.settings.methods[0]).write(stamp, entries)
        self.version += 1
        self._publish()
        self.on_change()


def _shorten(message: str) -> str:
    """Return in one line why a worker can't describe its methods, and what helps."""
    line = message.partition("\n")[0].replace(f"{TITLES[REQUEST_FAILED]}: ", "", 1)
    return f"{line} ({RETRY})" if NOT_MADE in line else line


def _file_of(entry: Entry) -> str | None:
    """Return the file of a method, where its description tells."""
    source = entry.get("x-source")
    file = source.get("file") if isinstance(source, dict) else None
    return file if isinstance(file, str) else None


class Waiting:
    """Somebody who waits for several answers, and not for ever."""

    def __init__(self, done: Callable[[], object]) -> None:
        self._done: Callable[[], object] | None = done
        self.count = 0

    @property
    def is_over(self) -> bool:
        """True where nobody waits any more."""
        return self._done is None

    def count_down(self) -> None:
        """Note that one answer less is missing."""
        self.count -= 1
        if not self.count:
            self.finish()

    def finish(self) -> None:
        """Call the function, once."""
        done, self._done = self._done, None
        if done is not None:
            done()

    def cancel(self) -> None:
        """Do not call the function."""
        self._done = None
