"""`kind = "particles"`: clouds of tokens under attention, on one or many independent paths."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow.attention import AbstractKernel, Auto, Chunked, Harmonic
from jaxflow.errors import InputError
from jaxflow.experiments import build
from jaxflow.experiments.job import Job, Progress, Run, State
from jaxflow.experiments.schema import Particles
from jaxflow.experiments.schema.weights import head_counts
from jaxflow.experiments.tallies import each_outcome, summarise
from jaxflow.experiments.trees import from_arrays, to_arrays
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance, order_parameter
from jaxflow.solve import AbstractObservable, Observe, solve
from jaxflow.solve.methods import AbstractFixed
from jaxflow.solve.spread import spread
from jaxflow.weights import largest_norm

PAIRS_AT_ONCE = 2**22
"""Paths run side by side while together they have no more pairs of tokens and heads than this. On a CPU each runs by
itself: its pairs are many enough to fill a core, and stay in its cache."""


@dataclass(frozen=True)
class Ensemble:
    """All paths of an experiment: flows, clouds and random keys with a leading axis, and what is watched."""

    experiment: Particles
    flows: AttentionFlow
    clouds: Cloud
    keys: Any
    observable: AbstractObservable
    heads: int
    at_once: int

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `solve`."""
        return build.solve_options(self.experiment.solve)

    @property
    def kernel(self) -> str:
        """How attention is computed, in words."""
        (_, n, d), kernel = self.clouds.points.shape, self.flows.kernel
        if isinstance(kernel, Harmonic):
            return f"harmonic, degree {kernel.degree_for(d, self.clouds.points.dtype)}"
        return f"{type(kernel).__name__.lower()}, {n * n * max(1, self.heads):.3g} pairs a velocity"

    def describe(self) -> dict[str, str]:
        """For a dry run."""
        paths, n, d = self.clouds.points.shape
        return {
            "paths": f"{paths}, {self.at_once} at a time on each of {len(jax.devices())} devices",
            "tokens": f"{n} in dimension {d}",
            "heads": str(self.heads),
            "method": type(self.options["method"]).__name__,
            "kernel": self.kernel,
            "balance": "yes" if self.observable is balance else "no: it has no meaning for this flow",
        }


def job(experiment: Particles, *, folder: Path, precision: str) -> Job:
    """The job of a checked config: one run, or one for each number of heads."""
    # Sweeps and stepped runs import from this module.
    from jaxflow.experiments.stepped import SteppedJob
    from jaxflow.experiments.sweep import SweepJob, members

    if head_counts(experiment.weights) is not None:
        runs = {heads: job(each, folder=folder, precision=precision) for heads, each in members(experiment).items()}
        return SweepJob(experiment, runs)
    ensemble = gather(experiment, folder=folder, precision=precision)
    fixed = isinstance(ensemble.options["method"], AbstractFixed)
    return SteppedJob(ensemble) if fixed else AdaptiveJob(ensemble)


def gather(experiment: Particles, *, folder: Path, precision: str) -> Ensemble:
    """Draw the tokens and heads of every path, each from random streams of its own."""
    root = jax.random.key(experiment.seed)
    keys = [jax.random.fold_in(root, path) for path in range(experiment.paths)]
    clouds = [build.cloud(experiment.tokens, key, folder=folder, precision=precision) for key in keys]
    n, dim = clouds[0].points.shape
    flows = [
        build.attention_flow(experiment.flow, build.schedule(experiment.weights, key, dim=dim, precision=precision))
        for key in keys
    ]
    try:
        kernel = _kernel(experiment, flows, clouds[0])
        flows = [replace(flow, kernel=kernel) for flow in flows]
    except InputError as error:
        raise InputError(error.what, where="flow.kernel", got=error.got, fix='take "auto" or "chunked"') from error
    flows[0].check(clouds[0])
    heads = flows[0].weights.at(0.0).heads
    fit = 1 if jax.default_backend() == "cpu" else PAIRS_AT_ONCE // (n * n * max(1, heads))
    at_once = int(np.clip(fit, 1, len(keys)))
    noise = jnp.stack([build.stream(key, "noise") for key in keys])
    return Ensemble(experiment, _stack(flows), _stack(clouds), noise, _observable(flows[0], clouds[0]), heads, at_once)


def _kernel(experiment: Particles, flows: list[AttentionFlow], cloud: Cloud) -> AbstractKernel:
    """The one kernel of all paths that `[flow]` asks for."""
    kernel, table, t1 = flows[0].kernel, experiment.flow, experiment.solve.t1
    assert t1 is not None
    if not isinstance(kernel, Auto):
        return kernel
    norms = [largest_norm(flow.weights, 0.0, t1) for flow in flows]
    norm = max((norm for norm in norms if norm is not None), default=0.0)
    if table.kernel == "harmonic":
        harmonic = Harmonic(norm, tolerance=table.kernel_tolerance)
        harmonic.degree_for(cloud.points.shape[1], cloud.points.dtype)
        return harmonic
    # What `settle` would take, but one kernel for all paths.
    auto = Auto(table.kernel_tolerance)
    return flows[0].chosen(auto, norm, cloud) if flows[0].sees_all else Chunked()


def _stack(parts: list[Any]) -> Any:
    """The paths' pytrees as one, with a leading axis on every array."""
    return jax.tree.map(lambda *xs: jnp.stack(xs), *parts)


def _observable(flow: AttentionFlow, cloud: Cloud) -> AbstractObservable:
    """The energy balance, where it has a meaning for this flow; else nothing."""
    try:
        balance.prepare(flow, cloud)
    except InputError:
        return Observe(lambda t, state: ())
    return balance


@dataclass(frozen=True)
class AdaptiveJob:
    """An adaptive run, in one piece: its steps are not known beforehand."""

    ensemble: Ensemble

    def describe(self) -> dict[str, str]:
        return {**self.ensemble.describe(), "steps": "adaptive"}

    def begin(self) -> State:
        return {}

    def advance(self, state: State) -> tuple[State, Progress]:
        e = self.ensemble
        sol = _solve(e.flows, e.clouds, e.observable, e.at_once, _static(e.options))
        found = {
            "ts": sol.ts[0],
            "points": sol.states.points[0],
            "final_points": sol.final.points,
            "order": orders(sol.final.points, e.clouds),
            "outcome": each_outcome(sol.status),
            "t_end": sol.t_end,
            "steps": sol.stats["steps"],
        }
        if e.observable is balance:
            found |= to_arrays("report", sol.observables)
        state = {name: np.asarray(value) for name, value in found.items()}
        return state, Progress(1, 1, "solve", {"t": float(np.min(state["t_end"]))})

    def finish(self, state: State) -> Run:
        from jaxflow.particles import Balance

        report = None
        if self.ensemble.observable is balance:
            shape = Balance(*[jnp.zeros(0)] * len(fields(Balance)))
            report = from_arrays("report", shape, state)
        return summarise(self.ensemble.experiment, state, report, kernel=self.ensemble.kernel)


def orders(final: Any, clouds: Cloud) -> Any:
    """The order parameter of every path at its end."""
    return jax.vmap(order_parameter)(Cloud(jnp.asarray(final), clouds.log_weights))


def _static(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Options in hashable form, so that they are part of the compiled program."""
    return tuple((name, tuple(x) if isinstance(x, list) else x) for name, x in options.items())


@eqx.filter_jit
def _solve(flows: AttentionFlow, clouds: Cloud, observable: AbstractObservable, at_once: int, options: Any) -> Any:
    def one(path: tuple[AttentionFlow, Cloud]) -> Any:
        return solve(*path, observe=observable, **dict(options))

    return spread(by_paths(one, at_once), (flows, clouds), jax.devices())


def by_paths(one: Callable[[Any], Any], at_once: int) -> Callable[[Any], Any]:
    """`one`, for a few paths at a time."""
    return lambda paths: jax.lax.map(one, paths, batch_size=None if at_once == 1 else at_once)
