"""What a check is: one number known exactly, and jaxflow's way to it."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """The outcome of one check; `error` is |computed − exact|."""

    name: str
    source: str
    exact: float
    computed: float
    error: float
    tolerance: float
    passed: bool
    seconds: float


@dataclass(frozen=True)
class Check:
    """An exact answer.

    Attributes:
        name: short, with underscores.
        source: paper and equation, or "derived" with the place.
        statement: the result in one sentence.
        exact: the value known beforehand.
        tolerance: the largest |computed − exact| that passes, in float64.
        compute: jaxflow's value.
    """

    name: str
    source: str
    statement: str
    exact: float
    tolerance: float
    compute: Callable[[], float]

    def run(self) -> Result:
        """Compute, compare, and time it."""
        began = time.perf_counter()
        computed, exact = float(self.compute()), float(self.exact)
        error = abs(computed - exact)
        return Result(
            self.name,
            self.source,
            exact,
            computed,
            error,
            self.tolerance,
            error <= self.tolerance,
            time.perf_counter() - began,
        )
