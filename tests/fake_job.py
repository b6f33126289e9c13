"""A job without physics, a random walk that can be stopped at will; and figures without a picture."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from jaxflow.experiments.job import Progress, Run, State


@dataclass
class FakeJob:
    """Walks `total` steps, `chunk` at a time; raises `failure` once when `fails_at` steps are done."""

    total: int = 12
    chunk: int = 4
    fails_at: int | None = None
    failure: BaseException = field(default_factory=KeyboardInterrupt)
    summary: dict[str, Any] = field(default_factory=lambda: {"status": "done"})

    def describe(self) -> dict[str, str]:
        return {"steps": str(self.total)}

    def begin(self) -> State:
        return {"done": np.array(0), "walk": np.zeros(3, np.float32), "seed": np.array([7, 0], np.uint32)}

    def advance(self, state: State) -> tuple[State, Progress]:
        done = int(state["done"])
        if done == self.fails_at:
            self.fails_at = None
            raise self.failure
        steps = np.random.default_rng([*state["seed"], done]).normal(size=(self.chunk, 3))
        walk = state["walk"] + steps.sum(0).astype(np.float32)
        done = min(done + self.chunk, self.total)
        progress = Progress(done, self.total, "steps", {"length": float(np.linalg.norm(walk))})
        return {**state, "done": np.array(done), "walk": walk}, progress

    def finish(self, state: State) -> Run:
        summary = {**self.summary, "walk": state["walk"], "missing": float("nan")}
        return Run(summary, {"walk": state["walk"]})


class FakeFigure:
    """Saves its format and resolution where a figure would save its picture."""

    def savefig(self, path, *, format, dpi=None, metadata=None):
        path.write_text(f"{format} {dpi} {metadata}")


class FakeViz:
    """Stands in for `jaxflow.viz`."""

    @staticmethod
    def figures(kind, arrays, summary, config):
        assert arrays.keys() == {"walk"}
        assert summary["status"]
        return {f"{kind}_walk": FakeFigure()}

    films: ClassVar[dict] = {}

    @classmethod
    def animations(cls, kind, arrays):
        return cls.films


class FakeFilm:
    """Stands in for a matplotlib animation."""

    def save(self, path, *, writer):
        path.write_bytes(b"GIF89a")
