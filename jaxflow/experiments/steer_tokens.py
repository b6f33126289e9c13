"""`kind = "steer_tokens"`: fit one multi-head layer in time that carries clouds of tokens to clouds."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow import control
from jaxflow.errors import InputError
from jaxflow.experiments import build
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.schema import TokenSteer
from jaxflow.experiments.schema.steer_tokens import Clouds
from jaxflow.experiments.trees import from_arrays, to_arrays
from jaxflow.geometry import AbstractGeometry, Euclidean, Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.solve import solve
from jaxflow.transport import wasserstein_clouds
from jaxflow.transport.exact import LARGEST_PROGRAM

CHUNK = 10
"""Iterations per compiled chunk."""

SAVES = 61
"""Times at which the tokens are kept."""


def job(experiment: TokenSteer, *, folder: Path, precision: str) -> "TokenSteerJob":
    """The job of a checked config.

    Raises:
        UnreachableError: no control can carry these starts to these targets.
    """
    root = build.stream(jax.random.key(experiment.seed), "tokens")
    keys = iter(jax.random.split(root, 2 * len(experiment.pairs)))
    options = {"folder": folder, "precision": precision}
    geometry = Sphere() if experiment.flow.geometry == "sphere" else Euclidean()
    starts, targets = [], []
    for pair in experiment.pairs:
        starts.append(_cloud(pair.start, next(keys), geometry, **options))
        targets.append(_cloud(pair.target, next(keys), geometry, **options))
    method: Any = build.METHODS[experiment.solve.method]
    C = experiment.control
    control.check_tokens_reachable(starts, targets, C.allow)
    problem = control.TokenProblem(
        tuple(starts),
        tuple(targets),
        C.segments,
        C.t1,
        C.allow,
        C.heads,
        jnp.asarray(C.effort, starts[0].points.dtype),
        C.loss,
        C.epsilon or 1.0,
        geometry,
        experiment.flow.law,
        method,
        experiment.solve.dt,
    )
    return TokenSteerJob(experiment, problem)


def _cloud(clouds: Clouds, key: Any, geometry: AbstractGeometry, *, folder: Path, precision: str) -> Cloud:
    """The cloud of one entry: its parts share the mass by their numbers of tokens."""
    tables = clouds if isinstance(clouds, list) else [clouds]
    made = [
        build.cloud(table, k, folder=folder, precision=precision)
        for table, k in zip(tables, jax.random.split(key, len(tables)))
    ]
    points = jnp.concatenate([cloud.points for cloud in made])
    if isinstance(geometry, Sphere):
        # Files hold finitely many digits.
        points = geometry.retract(points)
    if all(cloud.log_weights is None for cloud in made):
        return Cloud(points)
    return Cloud.from_weights(points, jnp.concatenate([cloud.weights * len(cloud.points) for cloud in made]))


@dataclass(frozen=True)
class TokenSteerJob:
    """Iterations in chunks; the exact distances and the paths at the end."""

    experiment: TokenSteer
    problem: control.TokenProblem

    @property
    def options(self) -> dict[str, Any]:
        C = self.experiment.control
        return {"method": C.method, "learning_rate": C.learning_rate or 1.0, "iterations": C.iterations}

    def describe(self) -> dict[str, str]:
        problem, C = self.problem, self.experiment.control
        pairs = [f"{len(x.points)} to {len(y.points)}" for x, y in zip(problem.starts, problem.targets)]
        return {
            "dimension": str(problem.dim),
            "pairs": f"{len(pairs)}: {', '.join(pairs)} tokens",
            "controls": f"{C.allow} on {C.segments} segments, heads {C.heads}",
            "loss": C.loss,
            "method": C.method,
            "iterations": f"at most {C.iterations}",
        }

    @cached_property
    def first(self) -> control.TokenSearch:
        """The search before its first iteration."""
        key = build.stream(jax.random.key(self.experiment.seed), "heads")
        controls = self.problem.first_controls(key if self.experiment.control.heads > 1 else None)
        return control.begin_tokens(self.problem, controls, **self.options)

    def begin(self) -> State:
        return {**to_arrays("search", self.first), "history": np.zeros((0, 2), self.problem.dtype)}

    def _search_in(self, state: State) -> control.TokenSearch:
        return jax.tree.map(jnp.asarray, from_arrays("search", self.first, state))

    def advance(self, state: State) -> tuple[State, Progress]:
        total, tolerance = self.options["iterations"], self.experiment.tolerance
        search, history = self._search_in(state), state["history"]
        before = int(search.iteration)
        search, new = _advance(self.problem, search, steps=min(CHUNK, total), tolerance=tolerance, **self.options)
        done = int(search.iteration)
        history = np.concatenate([history, np.asarray(new)[: done - before]])
        ended = float(search.distance) <= tolerance or bool(search.stalled)
        metrics = {"distance": float(search.distance), "objective": float(history[-1, 0])}
        state = {**to_arrays("search", search), "history": history}
        return state, Progress(done, done if ended else total, "iterations", metrics)

    def finish(self, state: State) -> Run:
        problem, tolerance = self.problem, self.experiment.tolerance
        plan = _plan(problem, self._search_in(state), jnp.asarray(state["history"]), tolerance=tolerance)
        ts = np.linspace(0, problem.t1, SAVES)
        arrays: dict[str, Any] = {
            "ts": ts,
            "edges": np.asarray(plan.weights.edges),
            "history": state["history"],
            **{f"controls.{name}": x for name, x in problem.controls_of(plan.weights).items()},
        }
        worst: dict[str, Any] = {"w2": 0.0, "w2_start": 0.0}
        each: dict[str, Any] = {}
        for p, (start, target) in enumerate(zip(problem.starts, problem.targets), 1):
            paths = _move(problem, plan, start, tuple(ts.tolist()))
            arrays |= {f"tokens_{p}": paths, f"target_{p}": target.points}
            arrays |= {f"weights_{p}": start.weights, f"target_weights_{p}": target.weights}
            each[f"distance_{p}"] = float(plan.distances[p - 1])
            for key, cloud in (("w2_start", start), ("w2", Cloud(paths[-1], start.log_weights))):
                each[f"{key}_{p}"] = _exact(cloud, target, problem.geometry)
                known = worst[key] is not None and each[f"{key}_{p}"] is not None
                worst[key] = max(worst[key], each[f"{key}_{p}"]) if known else None
        summary = {
            "status": "done" if bool(plan.converged) else "not_converged",
            "stop": plan.reason,
            "reachable": "yes",
            "distance": float(plan.distance),
            **worst,
            "effort": float(plan.effort),
            "iterations": int(plan.iterations),
            **each,
        }
        if not plan.converged:
            summary["advice"] = (
                f"the distance {float(plan.distance):.3g} of the worst pair is above the tolerance {tolerance:g}: "
                "raise control.iterations, control.segments or control.heads, or try another seed"
            )
        return Run(summary, {name: np.asarray(x) for name, x in arrays.items()})


@eqx.filter_jit
def _advance(problem: control.TokenProblem, search: control.TokenSearch, **options: Any) -> Any:
    return control.advance_tokens(problem, search, **options)


@eqx.filter_jit
def _plan(problem: control.TokenProblem, search: control.TokenSearch, history: Any, *, tolerance: float) -> Any:
    return control.make_token_plan(problem, search, history, tolerance=tolerance)


@eqx.filter_jit
def _move(problem: control.TokenProblem, plan: control.TokenPlan, start: Cloud, ts: tuple[float, ...]) -> Any:
    flow = AttentionFlow(plan.weights, law=problem.law, geometry=problem.geometry)
    return solve(flow, start, t1=problem.t1, method=problem.method, dt=problem.step / 2, save_at=ts).states.points


def _exact(cloud: Cloud, target: Cloud, geometry: AbstractGeometry) -> float | None:
    """W₂ along geodesics; None where the clouds are too large for the linear program."""
    if len(cloud.points) * len(target.points) > LARGEST_PROGRAM:
        return None
    try:
        return wasserstein_clouds(cloud, target, geometry=geometry)
    except InputError:
        # Only the size is left to refuse, and tokens that did not stay finite.
        return None
