"""How does an ensemble of clouds run by fixed steps? In compiled chunks of saved times that can be resumed."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.particles import Ensemble, by_paths, orders
from jaxflow.experiments.tallies import each_outcome, summarise
from jaxflow.experiments.trees import from_arrays, to_arrays
from jaxflow.particles import balance
from jaxflow.solve import Grid, begin, make_grid, march
from jaxflow.solve.spread import spread

CHUNKS = 40
"""Into how many chunks a run is cut, if it has so many saved times."""


@dataclass(frozen=True)
class SteppedJob:
    """Steps of equal length; the state is the carry of every path and what was saved so far."""

    ensemble: Ensemble

    @cached_property
    def grid(self) -> Grid:
        """Where the steps lie, and where they end in a saved time."""
        o = self.ensemble.options
        save_at = None if "save_at" not in o else [*(t for t in o["save_at"] if 0 < t < o["t1"]), o["t1"]]
        edges = self.ensemble.flows.weights.edges
        return make_grid(0.0, o["t1"], dt=o["dt"], edges=edges, save_every=o.get("save_every"), save_at=save_at)

    def describe(self) -> dict[str, str]:
        return {
            **self.ensemble.describe(),
            "steps": f"{self.grid.steps}, of at most {self.ensemble.options['dt']:g}",
            "saved": f"{len(self.grid.ts) + 1} times",
        }

    @cached_property
    def first(self) -> Any:
        """The carry and the first saved entry of every path."""
        e = self.ensemble
        return _begin(e.flows, e.clouds, e.keys, e.observable)

    def begin(self) -> State:
        carry, saved = self.first
        first = {"ts": np.zeros(1), "points": np.asarray(self.ensemble.clouds.points[:1])}
        return {**to_arrays("carry", carry), **to_arrays("saved", saved), **first, "block": np.array(0)}

    def advance(self, state: State) -> tuple[State, Progress]:
        e, grid = self.ensemble, self.grid
        like_carry, like_saved = self.first
        start = int(state["block"])
        stop = min(start + -(-len(grid.ts) // CHUNKS), len(grid.ts))
        carry, points, new = _march(
            e.flows,
            from_arrays("carry", like_carry, state),
            grid[start:stop],
            e.keys,
            e.observable,
            e.options["method"],
            e.at_once,
        )
        saved = jax.tree.map(
            lambda x, y: np.concatenate([x, np.asarray(y)], 1), from_arrays("saved", like_saved, state), new
        )
        state = {
            **to_arrays("carry", carry),
            **to_arrays("saved", saved),
            "ts": np.append(state["ts"], grid.ts[start:stop]),
            "points": np.concatenate([state["points"], np.asarray(points)]),
            "block": np.array(stop),
        }
        metrics = {"t": float(grid.ts[stop - 1])}
        if e.observable is balance:
            energy, slope, rate = (float(np.mean(x[:, -1])) for x in saved[0][:3])
            metrics |= {"energy": energy, "rate": rate, "slope": slope}
        return state, Progress(grid[:stop].steps, grid.steps, "steps", metrics)

    def finish(self, state: State) -> Run:
        e = self.ensemble
        carry = from_arrays("carry", self.first[0], state)
        measured, integrals = from_arrays("saved", self.first[1], state)
        report = jax.vmap(e.observable.report)(measured, integrals) if e.observable is balance else None
        ts, points = state["ts"], state["points"]
        wanted = e.options.get("save_at")
        if wanted is not None:
            kept = np.isin(ts, wanted)
            ts, points = ts[kept], points[kept]
            report = jax.tree.map(lambda x: x[:, kept], report)
        found = {
            "ts": ts,
            "points": points,
            "final_points": carry.y,
            "order": orders(carry.y, e.clouds),
            "outcome": each_outcome(carry.status),
            "t_end": carry.t_end,
            "steps": carry.steps,
        }
        return summarise(e.experiment, {name: np.asarray(x) for name, x in found.items()}, report, kernel=e.kernel)


@eqx.filter_jit
def _begin(flows: Any, clouds: Any, keys: Any, observable: Any) -> Any:
    """The carry of every path, and its first measurements and integrals with a time axis."""

    def one(flow: Any, cloud: Any, key: Any) -> Any:
        flow = observable.prepare(flow, cloud)
        carry = begin(flow, cloud, t0=0.0, observable=observable, key=key)
        t = jnp.zeros((), cloud.points.dtype)
        measured = observable.measure(flow, t, cloud, flow.weights.piece(0), carry.noise)
        return carry, jax.tree.map(lambda x: x[None], (measured, carry.integrals))

    return jax.vmap(one)(flows, clouds, keys)


@eqx.filter_jit
def _march(flows: Any, carries: Any, grid: Grid, keys: Any, observable: Any, method: Any, at_once: int) -> Any:
    """One chunk of every path: carries, the first path's tokens, and what was saved, (paths, times, ...)."""

    def one(path: Any) -> Any:
        flow, carry, key = path
        flow = observable.prepare(flow, flow.join(carry.y, carry.rest))
        carry, saved = march(flow, carry, grid, method=method, observable=observable, key=key)
        return carry, saved.state.points, (saved.measured, saved.integrals)

    carry, points, saved = spread(by_paths(one, at_once), (flows, carries, keys), jax.devices())
    return carry, points[0], saved
