"""`kind = "meanfield"`: a density on S¹ or S² under attention, and clouds of finitely many tokens beside it."""

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow.attention import Auto
from jaxflow.errors import InputError
from jaxflow.experiments import build
from jaxflow.experiments.densities import start
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.schema import MeanField
from jaxflow.experiments.schema.meanfield import Infinite
from jaxflow.experiments.tallies import each_outcome
from jaxflow.experiments.trees import from_arrays, to_arrays
from jaxflow.meanfield import (
    Density,
    DensityBalance,
    DensityFlow,
    InfiniteDensityFlow,
    balance,
    cloud_distance,
)
from jaxflow.particles import AttentionFlow, InfiniteHeads, OrnsteinUhlenbeckLimit
from jaxflow.solve import AbstractObservable, Grid, Observe, begin, make_grid, march, solve
from jaxflow.solve.methods import AbstractFixed

CHUNKS = 20
"""Into how many chunks the density's run is cut, if it has so many saved times."""


def job(experiment: MeanField, *, folder: Path, precision: str) -> "MeanFieldJob":
    """The job of a checked config.

    Raises:
        InputError: the degree does not resolve the start, or the heads are too large.
    """
    key = jax.random.key(experiment.seed)
    density = start(experiment.density, key, folder=folder, precision=precision)
    flow, weights, t1 = experiment.flow, experiment.weights, experiment.solve.t1
    common: dict[str, Any] = {"kappa": flow.kappa, "grid": flow.grid, "negativity": flow.negativity}
    made: DensityFlow | InfiniteDensityFlow
    if isinstance(weights, Infinite):
        dtype = density.coefficients.dtype
        kernel = OrnsteinUhlenbeckLimit(
            noise_var=jnp.asarray(weights.noise_var, dtype),
            initial_var=weights.initial_var,
            stationary=weights.stationary,
        )
        assert flow.direction is not None  # a default
        made = InfiniteDensityFlow(kernel, dim=density.dim, direction=flow.direction, **common)
    else:
        schedule = build.schedule(weights, key, dim=density.dim, precision=precision)
        law = flow.law or "softmax"
        made = DensityFlow(schedule, law=law, direction=flow.direction, **common)
        made = made.settle(density, 0.0, t1)
    made.check(density)
    return MeanFieldJob(experiment, made, density)


@dataclass(frozen=True)
class MeanFieldJob:
    """The density in chunks of saved times (adaptive methods in one), then the clouds one by one."""

    experiment: MeanField
    flow: DensityFlow | InfiniteDensityFlow
    density: Density

    @cached_property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `solve`, for the density and for clouds."""
        options = build.solve_options(self.experiment.solve)
        return options if self.noise is None else {**options, "key": self.noise}

    @property
    def noise(self) -> Any:
        """The key of random weights: the density and all clouds see the same path of the heads."""
        return build.stream(self._key, "noise") if self.flow.random else None

    @property
    def _key(self) -> Any:
        return jax.random.key(self.experiment.seed)

    @cached_property
    def observable(self) -> AbstractObservable:
        """The energy balance, where it has a meaning for this flow; else nothing."""
        try:
            balance.prepare(self.flow, self.density)
        except InputError:
            return Observe(lambda t, state: ())
        return balance

    @property
    def fixed(self) -> bool:
        """Whether steps are known beforehand."""
        return isinstance(self.options["method"], AbstractFixed)

    @cached_property
    def grid(self) -> Grid:
        """Where the steps lie, and where they end in a saved time."""
        o = self.options
        save_at = None if "save_at" not in o else [*(t for t in o["save_at"] if 0 < t < o["t1"]), o["t1"]]
        edges = self.flow.weights.edges
        return make_grid(0.0, o["t1"], dt=o["dt"], edges=edges, save_every=o.get("save_every"), save_at=save_at)

    @property
    def clouds(self) -> list[tuple[int, int]]:
        """(n, repeat) of every cloud."""
        table = self.experiment.clouds
        return [(n, repeat) for n in table.n for repeat in range(table.repeats)]

    def describe(self) -> dict[str, str]:
        facts = {name: int(value) for name, value in self.flow.facts(self.density).items()}
        kernel = facts["harmonic_degree"]
        table = self.experiment.clouds
        return {
            "density": f"on S{'¹' if self.density.dim == 2 else '²'}, degree {self.density.degree}",
            "coefficients": str(self.density.coefficients.size),
            "grid": f"degree {facts['grid_degree']}",
            "kernel": f"degree {kernel}" if kernel else "diagonal: no pairs of points",
            "method": type(self.options["method"]).__name__,
            "steps": f"{self.grid.steps}, of at most {self.options['dt']:g}" if self.fixed else "adaptive",
            "balance": "yes" if self.observable is balance else "no: it has no meaning for this flow",
            "clouds": f"{', '.join(map(str, table.n))} tokens, {table.repeats} draws each" if table.n else "none",
        }

    @cached_property
    def first(self) -> Any:
        """The carry and the first saved entry."""
        return _begin(self.flow, self.density, self.observable, self.noise)

    def begin(self) -> State:
        c = np.asarray(self.density.coefficients)
        state = {"block": np.array(0), "cloud": np.array(0), "distances": np.zeros(0)}
        if not self.fixed:
            return state
        carry, saved = self.first
        first = {"ts": np.zeros(1), "coefficients": c[None], "valid": np.ones(1, bool)}
        return {**state, **first, **to_arrays("carry", carry), **to_arrays("saved", saved)}

    @property
    def blocks(self) -> int:
        """How many units the density's run counts."""
        return len(self.grid.ts) if self.fixed else 1

    def advance(self, state: State) -> tuple[State, Progress]:
        if int(state["block"]) < self.blocks:
            state, metrics = self._march(state) if self.fixed else self._solve(state)
        else:
            state, metrics = self._cloud(state)
        # A density that is lost has no end to compare clouds with.
        clouds = len(self.clouds) if bool(state["valid"][-1]) else 0
        done = int(state["block"]) + int(state["cloud"])
        return state, Progress(done, self.blocks + clouds, "saves", metrics)

    def _march(self, state: State) -> tuple[State, dict[str, float]]:
        like_carry, like_saved = self.first
        begun, grid = int(state["block"]), self.grid
        stop = min(begun + -(-len(grid.ts) // CHUNKS), len(grid.ts))
        carry, states, valid, new = _march(
            self.flow,
            from_arrays("carry", like_carry, state),
            grid[begun:stop],
            self.noise,
            self.observable,
            self.options["method"],
        )
        saved = jax.tree.map(
            lambda x, y: np.concatenate([x, np.asarray(y)]), from_arrays("saved", like_saved, state), new
        )
        state = {
            **state,
            **to_arrays("carry", carry),
            **to_arrays("saved", saved),
            "ts": np.append(state["ts"], grid.ts[begun:stop]),
            "coefficients": np.concatenate([state["coefficients"], np.asarray(states.coefficients)]),
            "valid": np.append(state["valid"], np.asarray(valid)),
            # A run that is over is not marched on.
            "block": np.array(stop if bool(valid[-1]) else len(grid.ts)),
        }
        metrics = {"t": float(carry.t_end)}
        if self.observable is balance:
            metrics |= {"energy": float(saved[0][0][-1]), "least": float(saved[0][5][-1])}
        return state, metrics

    def _solve(self, state: State) -> tuple[State, dict[str, float]]:
        sol = _solve(self.flow, self.density, self.observable, _static(self.options))
        found = {
            **state,
            "ts": sol.ts,
            "coefficients": sol.states.coefficients,
            "valid": sol.valid,
            "final": sol.final.coefficients,
            "outcome": each_outcome(sol.status),
            "t_end": sol.t_end,
            "steps": sol.stats["steps"],
            "block": np.array(1),
        }
        if self.observable is balance:
            found |= to_arrays("report", sol.observables)
        return {name: np.asarray(x) for name, x in found.items()}, {"t": float(sol.t_end)}

    def _cloud(self, state: State) -> tuple[State, dict[str, float]]:
        index = int(state["cloud"])
        n, repeat = self.clouds[index]
        key = jax.random.fold_in(jax.random.fold_in(build.stream(self._key, "tokens"), n), repeat)
        flow, degree = self.tokens, self.experiment.clouds.degree
        cloud = self.density.sample(key, n=n)
        # Chosen here, where the weights are known; compiled once for each n.
        settled = flow.settle(cloud, 0.0, self.options["t1"])
        end = _run_cloud(settled, cloud, _static({**self.options, "save_at": None, "save_every": None}))
        distance = float(cloud_distance(end, Density(jnp.asarray(self.last(state)), self.density.dim), degree=degree))
        state = {**state, "cloud": np.array(index + 1), "distances": np.append(state["distances"], distance)}
        return state, {"tokens": float(n), "distance": distance}

    def last(self, state: State) -> np.ndarray:
        """The coefficients at the end."""
        return state["carry.y"] if self.fixed else state["final"]

    @property
    def tokens(self) -> AttentionFlow | InfiniteHeads:
        """The flow of clouds."""
        if isinstance(self.flow, InfiniteDensityFlow):
            return InfiniteHeads(self.flow.kernel, direction=self.flow.direction)
        f = self.flow
        return AttentionFlow(f.weights, law=f.law, direction=f.direction, kernel=Auto())

    def finish(self, state: State) -> Run:
        from jaxflow.experiments.meanfield_report import summarise

        if self.fixed:
            carry = from_arrays("carry", self.first[0], state)
            saved = jax.tree.map(jnp.asarray, from_arrays("saved", self.first[1], state))
            report = self.observable.report(*saved) if self.observable is balance else None
            found = {"outcome": each_outcome(carry.status), "t_end": carry.t_end, "steps": carry.steps}
            state = {**state, "final": self.last(state), **{name: np.asarray(x) for name, x in found.items()}}
            wanted = self.options.get("save_at")
            if wanted is not None:
                kept = np.isin(state["ts"], wanted)
                state = {**state, **{name: state[name][kept] for name in ("ts", "coefficients", "valid")}}
                report = jax.tree.map(lambda x: x[kept], report)
        else:
            shape = DensityBalance(*[jnp.zeros(0)] * len(fields(DensityBalance)))
            report = from_arrays("report", shape, state) if self.observable is balance else None
        return summarise(self.experiment, self.flow, state, report)


def _static(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Options in hashable form, so that they are part of the compiled program; without those that are absent."""
    return tuple((name, tuple(x) if isinstance(x, list) else x) for name, x in options.items() if x is not None)


@eqx.filter_jit
def _begin(flow: Any, density: Density, observable: Any, key: Any) -> Any:
    """The carry, and the first measurements and integrals with a time axis."""
    flow = observable.prepare(flow, density)
    carry = begin(flow, density, t0=0.0, observable=observable, key=key)
    t = jnp.zeros((), density.coefficients.dtype)
    measured = observable.measure(flow, t, density, flow.weights.piece(0), carry.noise)
    return carry, jax.tree.map(lambda x: x[None], (measured, carry.integrals))


@eqx.filter_jit
def _march(flow: Any, carry: Any, grid: Grid, key: Any, observable: Any, method: Any) -> Any:
    """One chunk: the carry, the states, which of them were reached, and what was saved."""
    flow = observable.prepare(flow, flow.join(carry.y, carry.rest))
    carry, saved = march(flow, carry, grid, method=method, observable=observable, key=key)
    return carry, saved.state, saved.valid, (saved.measured, saved.integrals)


@eqx.filter_jit
def _solve(flow: Any, density: Density, observable: Any, options: Any) -> Any:
    return solve(flow, density, observe=observable, **dict(options))


@eqx.filter_jit
def _run_cloud(flow: Any, cloud: Any, options: Any) -> Any:
    return solve(flow, cloud, **dict(options)).final
