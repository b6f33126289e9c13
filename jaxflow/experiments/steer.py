"""`kind = "steer"`: fit layers that carry one Gaussian to another, then move real tokens with them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow import control
from jaxflow.control.ground import Ground
from jaxflow.experiments import build, cheapest
from jaxflow.experiments.data import read_samples
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.plans import arrays_of, problem_of, shape_in_words, summary_of
from jaxflow.experiments.schema import Steer
from jaxflow.experiments.trees import from_arrays, to_arrays
from jaxflow.gaussian import moments
from jaxflow.geometry import Euclidean
from jaxflow.measures import Cloud, Gaussian, sample
from jaxflow.particles import AttentionFlow
from jaxflow.solve import RK4, solve
from jaxflow.transport import wasserstein_gaussian

CHUNK = 50
"""Iterations per compiled chunk."""

SAVES = 101
"""Times at which the fitted path is kept."""

TOKENS = 1000
"""How many tokens are drawn when the config does not say."""


def job(experiment: Steer, *, folder: Path, precision: str) -> "SteerJob":
    """The job of a checked config.

    Raises:
        UnreachableError: the target is out of reach of every control.
    """
    options = {"folder": folder, "precision": precision}
    start = build.gaussian(experiment.start, where="start", **options)
    target = build.gaussian(experiment.target, where="target", **options)
    control.check_reachable(start, target, experiment.control.allow)
    problem = problem_of(experiment, start, target)
    files = {
        name: None if table.samples is None else read_samples(table.samples, where=f"{name}.samples", **options)
        for name, table in (("start", experiment.start), ("target", experiment.target))
    }
    if experiment.control.method == "cheapest":
        cheapest.ground_of(problem, experiment.control)
    return SteerJob(experiment, problem, files["start"], files["target"])


@dataclass(frozen=True)
class SteerJob:
    """Iterations in chunks; the verification and the tokens at the end."""

    experiment: Steer
    problem: control.Problem
    start_samples: np.ndarray | None
    target_samples: np.ndarray | None

    @property
    def search_options(self) -> dict[str, Any]:
        C = self.experiment.control
        return {"method": C.method, "learning_rate": C.learning_rate or 0.0, "iterations": C.iterations or 1}

    def describe(self) -> dict[str, str]:
        problem, C = self.problem, self.experiment.control
        return {
            "dimension": str(problem.start.dim),
            "rank": str(problem.start.rank),
            "method": C.method,
            "iterations": f"at most {C.iterations}" if C.iterations else "none",
            "controls": f"{C.allow}, {shape_in_words(problem)}",
            "tokens": str(self._tokens().points.shape[0]),
        }

    @property
    def _ground(self) -> Ground | None:
        C = self.experiment.control
        return cheapest.ground_of(self.problem, C) if C.method == "cheapest" else None

    def begin(self) -> State:
        if (ground := self._ground) is not None:
            return cheapest.begin(ground)
        search = self._first_search()
        return {**to_arrays("search", search), "history": np.zeros((0, 2), self.problem.start.mean.dtype)}

    def _first_search(self) -> control.Search:
        if self.experiment.control.method == "constructive":
            controls = control.constructive_controls(self.problem)
            return control.begin(self.problem, controls, **{**self.search_options, "method": "gauss-newton"})
        return control.begin(self.problem, self.problem.zero_controls(), **self.search_options)

    def _search_in(self, state: State) -> control.Search:
        return jax.tree.map(jnp.asarray, from_arrays("search", self._first_search(), state))

    def advance(self, state: State) -> tuple[State, Progress]:
        if self.experiment.control.method == "constructive":
            return state, Progress(1, 1, "construction", {})
        total = self.search_options["iterations"]
        if (ground := self._ground) is not None:
            return cheapest.advance(ground, state, iterations=total, tolerance=self.experiment.tolerance)
        search, history = self._search_in(state), state["history"]
        before = int(search.iteration)
        search, new = _advance(
            self.problem,
            search,
            steps=min(CHUNK, total),
            tolerance=self.experiment.tolerance,
            **self.search_options,
        )
        taken = int(search.iteration) - before
        history = np.concatenate([history, np.asarray(new)[:taken]])
        done = int(search.iteration)
        # A search that stops by itself has met the tolerance or sees no way on.
        ended = taken < min(CHUNK, total - before)
        ended = ended or float(search.distance) <= self.experiment.tolerance
        total = done if ended else total
        metrics = {"w2": float(search.distance), "objective": float(history[-1, 0])}
        return {**to_arrays("search", search), "history": history}, Progress(done, total, "iterations", metrics)

    def finish(self, state: State) -> Run:
        problem, tolerance = self.problem, self.experiment.tolerance
        more: dict[str, Any] = {}
        if (ground := self._ground) is not None:
            now = cheapest.search_in(ground, state)
            more, stop = cheapest.found(ground, now)
            best, iterations = now.controls, now.iteration
        else:
            search = self._search_in(state)
            best, iterations, stop = search.best, search.iteration, self._stop(search)
        ts = np.linspace(0, problem.t1, SAVES)
        fine = _verify(problem, best, tuple(ts.tolist()))
        history = jnp.asarray(state["history"])
        plan = control.make_plan(problem, best, history, iterations, tolerance=tolerance, verified=fine, stop=stop)
        summary, arrays = summary_of(plan, fine, tolerance) | more, arrays_of(problem, best, plan, fine)
        moved = self._move(plan)
        summary.update(moved.summary)
        arrays.update(moved.arrays)
        if self.target_samples is not None:
            arrays["target_samples"] = self.target_samples
        return Run(summary, {name: np.asarray(x) for name, x in arrays.items()})

    def _stop(self, search: control.Search) -> control.Stop:
        method = self.experiment.control.method
        if method in ("constructive", "cheapest"):
            return control.Stop.closed_form
        return control.why(self.problem, search, method=method, tolerance=self.experiment.tolerance)

    def _tokens(self) -> Cloud:
        """The rows of the start's file if there is one and no number was asked for, else draws from the start."""
        n = self.experiment.tokens.n
        if n is None and self.start_samples is not None:
            return Cloud(jnp.asarray(self.start_samples))
        key = build.stream(jax.random.key(self.experiment.seed), "tokens")
        return sample(self.problem.start, key, n=TOKENS if n is None else n)

    def _move(self, plan: control.Plan) -> Run:
        """The tokens under the fitted layers, and how far from the target their cloud lands."""
        tokens = self._tokens()
        n = tokens.points.shape[0]
        if n == 0:
            return Run({}, {})
        flow = AttentionFlow(plan.weights, geometry=Euclidean())
        T = float(plan.horizon)
        times = np.linspace(0, T, 41)
        sol = _move(flow, tokens, T, self.experiment.tokens.dt, tuple(times.tolist()))
        moved = np.asarray(sol.states.points)
        key = build.stream(jax.random.key(self.experiment.seed), "noise")
        return Run(
            {
                "tokens_n": n,
                "tokens_w2": _distance(moved[-1], self.problem.target),
                "tokens_w2_of_samples": _sampling_error(self.problem.target, key, n),
            },
            {"tokens_ts": times, "tokens": moved},
        )


@eqx.filter_jit
def _advance(problem: control.Problem, search: control.Search, **options: Any) -> Any:
    return control.advance(problem, search, **options)


@eqx.filter_jit
def _verify(problem: control.Problem, controls: Any, ts: tuple[float, ...]) -> Any:
    return problem.verify(controls, save_at=ts, observe=moments)


@eqx.filter_jit
def _move(flow: AttentionFlow, tokens: Cloud, t1: float, dt: float, ts: tuple[float, ...]) -> Any:
    return solve(flow, tokens, t1=t1, method=RK4(), dt=min(dt, t1), save_at=ts)


def _distance(points: np.ndarray, target: Gaussian) -> float:
    """W₂ between the Gaussian with the tokens' own mean and covariance, and the target."""
    cloud = Cloud(jnp.asarray(points))
    found = Gaussian.from_covariance(cloud.mean, cloud.covariance)
    return float(wasserstein_gaussian(found, target))


def _sampling_error(target: Gaussian, key: Any, n: int, *, draws: int = 20) -> float:
    """The same distance for n true samples of the target: the mean over some draws. What no control can beat."""
    keys = jax.random.split(key, draws)
    return float(np.mean([_distance(np.asarray(sample(target, k, n=n).points), target) for k in keys]))
