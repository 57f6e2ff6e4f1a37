"""The states of a backend, and which may follow which.

Everything that changes a backend's state is an event in this table; everything else asks
`StateMachine.state`. An event that the table does not have for a state is a bug.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """What a backend is doing; the values are what clients see."""

    STOPPED = "stopped"  # not running; the next request starts it
    STARTING = "starting"  # running, before its handshake is done; requests wait
    READY = "ready"  # running and taking requests
    STOPPING = "stopping"  # asked to exit
    BACKOFF = "backoff"  # exited unexpectedly, to be started again after a delay
    FAILED = "failed"  # exited too often, or can't be started at all


class Event(Enum):
    """What changes the state."""

    SPAWNED = "its process runs and its handshake has begun"
    CONNECTED = "it takes requests"
    STOP_REQUESTED = "its process is asked to exit"
    STOPPED = "its process is gone as requested, or there was none"
    CRASHED = "its process exited unexpectedly or could not be started; it is tried again"
    GIVEN_UP = "it is not tried again"


_FROM_REST = {
    Event.SPAWNED: State.STARTING,
    Event.CONNECTED: State.READY,
    Event.CRASHED: State.BACKOFF,
    Event.GIVEN_UP: State.FAILED,
    Event.STOPPED: State.STOPPED,
}

TRANSITIONS = {
    State.STOPPED: _FROM_REST,
    State.BACKOFF: _FROM_REST,
    State.FAILED: {Event.STOPPED: State.STOPPED},
    State.STARTING: {
        Event.CONNECTED: State.READY,
        Event.STOP_REQUESTED: State.STOPPING,
        Event.STOPPED: State.STOPPED,  # a worker that can't have its environment
        Event.CRASHED: State.BACKOFF,
        Event.GIVEN_UP: State.FAILED,
    },
    State.READY: {
        Event.STOP_REQUESTED: State.STOPPING,
        Event.STOPPED: State.STOPPED,  # a client ended its language server
        Event.CRASHED: State.BACKOFF,
        Event.GIVEN_UP: State.FAILED,
    },
    State.STOPPING: {Event.STOPPED: State.STOPPED},
}


class InvalidTransition(RuntimeError):
    """An event came that the state does not allow."""


class StateMachine:
    """The state of one backend."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = State.STOPPED

    def handle(self, event: Event) -> None:
        """Go to the state that follows; raises `InvalidTransition`."""
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            raise InvalidTransition(f"{event.name} in state {self.state.name}")
        self.state = following
