"""What must a runner offer so that the engine can run, show, stop and resume it? The Job protocol."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

# Everything that the next chunk depends on, as named arrays, so that it can be stored and loaded.
State = dict[str, np.ndarray]


@dataclass(frozen=True)
class Progress:
    """How far a job is: `done` of `total` units (steps, iterations), and the numbers that matter."""

    done: int
    total: int
    unit: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class Run:
    """What a job found: a flat summary with at least `status`, and named arrays."""

    summary: dict[str, Any]
    arrays: dict[str, np.ndarray]


@runtime_checkable
class Job(Protocol):
    """Work cut into chunks. The same state must always lead to the same next state."""

    def describe(self) -> dict[str, str]:
        """Sizes, steps and memory, for a dry run."""
        ...

    def begin(self) -> State:
        """The state before the first chunk."""
        ...

    def advance(self, state: State) -> tuple[State, Progress]:
        """One compiled chunk further; the job is finished when `done` equals `total`."""
        ...

    def finish(self, state: State) -> Run:
        """The results, from the last state."""
        ...
