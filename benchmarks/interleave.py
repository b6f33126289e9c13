"""How contestants are timed: in turns, in one process; medians."""

import statistics
import time
from collections.abc import Callable
from typing import Any


def medians(contestants: dict[str, Callable[[], Any]], *, rounds: int = 15) -> dict[str, float]:
    """Seconds of one call of each contestant: the median over rounds in which all take turns. A call must block until
    its result is there; one round to warm up is not counted."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, call in contestants.items():
            began = time.perf_counter()
            call()
            if turn > 0:
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def report(title: str, seconds: dict[str, float], *, unit: str = "ms") -> dict[str, float]:
    """Print a line a contestant, with its time over that of the first; returns the numbers."""
    first = next(iter(seconds.values()))
    print(f"\n{title}")
    for name, value in seconds.items():
        print(f"  {name:<42} {value * 1e3:10.3f} {unit}   {value / first:7.2f} ×")
    return seconds
