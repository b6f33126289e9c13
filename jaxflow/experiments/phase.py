"""`kind = "phase"`: what becomes of a Gaussian under V = vI, B = bI, over a grid of (v, b)?

Every point is simulated by equation (1.1) of arXiv:2606.07600 up to t1, and judged by how tr Σ and |μ| change over the
second half of the run: Σ has settled if ln tr Σ changes there by less than SETTLED. The verdicts are compared with
`gaussian.phase_of` and `gaussian.mean_converges`, which know t → ∞. At a finite t1 a verdict may differ from theirs:
for blow-up times beyond t1, and while Σ still approaches its rest. Such points form the band.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow import gaussian
from jaxflow.errors import InputError
from jaxflow.experiments import build
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.schema import Phase
from jaxflow.experiments.tallies import OUTCOMES, each_outcome
from jaxflow.gaussian import PHASES, MomentFlow
from jaxflow.measures import Gaussian
from jaxflow.solve import solve
from jaxflow.solve.solution import ADVICE
from jaxflow.weights import Constant

SETTLED = 0.05

VANISHED = 1e-6
"""A standard deviation or mean this small beside the first has vanished: the solver's tolerance hides the rest."""

FAILED = len(PHASES)
"""The verdict of a point at which the solver failed."""


def job(experiment: Phase, *, folder: Path, precision: str) -> "PhaseJob":
    """The job of a checked config.

    Raises:
        InputError: the covariance of the start is singular, and the analysis then does not hold.
    """
    start = build.gaussian(experiment.start, where="start", folder=folder, precision=precision)
    rank = int(np.linalg.matrix_rank(np.asarray(start.factor)))
    if rank < start.dim:
        raise InputError(
            "the phases are known for covariances of full rank",
            where="start",
            got=f"rank {rank}",
            expected=f"rank {start.dim}",
        )
    A = np.zeros((start.dim, start.dim)) if experiment.weights.A is None else np.array(experiment.weights.A)
    return PhaseJob(experiment, start, A.astype(precision))


@dataclass(frozen=True)
class PhaseJob:
    """The grid, one row (one b, every v) in a chunk."""

    experiment: Phase
    start: Gaussian
    A: np.ndarray

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `solve`: start, middle and end of the run are saved."""
        table = self.experiment.solve
        options = {name: getattr(table, name) for name in ("t1", "rtol", "atol", "max_steps")}
        return {**options, "method": build.METHODS[table.method], "save_at": (0.0, table.t1 / 2, table.t1)}

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """The values of v and of b."""
        grid = self.experiment.grid
        v, b = (np.linspace(low, high, grid.points, dtype=self.A.dtype) for low, high in (grid.v, grid.b))
        return v, b

    def describe(self) -> dict[str, str]:
        points = self.experiment.grid.points
        return {
            "dimension": str(self.start.dim),
            "grid": f"{points} × {points}",
            "threshold": f"blow-up for v·b > {float(gaussian.blowup_threshold(jnp.asarray(self.A), self.start)):.6g}",
            "method": type(self.options["method"]).__name__,
        }

    def begin(self) -> State:
        return {"done": np.array(0)}

    def advance(self, state: State) -> tuple[State, Progress]:
        (v, b), done = self.axes, int(state["done"])
        found = _row(jnp.asarray(self.A), jnp.asarray(v), jnp.asarray(b[done]), self.start, self.options)
        row = {name: np.asarray(x) for name, x in found.items() if name != "status"}
        row["outcome"] = each_outcome(found["status"])
        row["verdict"] = _verdict(row["outcome"], row["log_growth"])
        state = {**state, "done": np.array(done + 1)}
        for name, x in row.items():
            state[name] = np.concatenate([state[name], x[None]]) if name in state else x[None]
        metrics = {"b": float(b[done]), "blown up": float(np.mean(state["verdict"] == PHASES.index("blows_up")))}
        return state, Progress(done + 1, len(b), "rows", metrics)

    def finish(self, state: State) -> Run:
        v, b = self.axes
        expected = _expected(self.A, self.start, v, b, self.experiment.solve.t1)
        verdict, times = state["verdict"], state["blowup_time"]
        blown, failed = verdict == PHASES.index("blows_up"), verdict == FAILED
        wrong = (verdict != expected["phase"]) & ~failed
        mean_converges = np.where(blown | failed, False, state["mean_growth"] < 0)
        judged = ~blown & ~failed & ~wrong & (np.linalg.norm(self.start.mean) > 0)
        worst = OUTCOMES[int(np.max(state["outcome"], where=failed, initial=0))]
        summary: dict[str, Any] = {"status": worst, "points": int(verdict.size)}
        summary |= {name: int(np.sum(verdict == i)) for i, name in enumerate(PHASES)}
        summary |= {
            "failed": int(failed.sum()),
            "disagree": int(np.sum(wrong & ~expected["band"])),
            "disagree_in_band": int(np.sum(wrong & expected["band"])),
            "band": int(expected["band"].sum()),
            "mean_converges": int(np.sum(mean_converges & judged)),
            "mean_disagree": int(np.sum((mean_converges != expected["mean_converges"]) & judged)),
            "threshold": float(expected["threshold"]),
            "threshold_at_t1": float(expected["threshold_at_t1"]),
            "blowup_time_error": _time_error(self.A, self.start, v, b, times, blown),
        }
        if worst in ADVICE:
            summary["advice"] = ADVICE[worst]
        arrays = {"v": v, "b": b, **{name: x for name, x in state.items() if name != "done"}}
        arrays |= {"expected": expected["phase"], "band": expected["band"], "threshold": expected["threshold"]}
        return Run(summary, arrays | {"expected_mean": expected["mean_converges"]})


def _verdict(outcome: np.ndarray, log_growth: np.ndarray) -> np.ndarray:
    """The place in PHASES that the second half of each run shows; FAILED where the solver stopped."""
    moving = np.where(log_growth < -SETTLED, PHASES.index("decays"), PHASES.index("grows"))
    seen = np.where(np.abs(log_growth) <= SETTLED, PHASES.index("settles"), moving)
    return np.where(outcome == 0, seen, np.where(outcome == 1, PHASES.index("blows_up"), FAILED))


def _expected(A: np.ndarray, start: Gaussian, v: np.ndarray, b: np.ndarray, t1: float) -> dict[str, np.ndarray]:
    """Phases, whether means converge, the thresholds, and the band in which a run up to t1 may see something else."""
    c = b[:, None] * v[None]
    analysed = _analyse(jnp.asarray(A), start, jnp.asarray(v), jnp.asarray(c), t1)
    phases, means, threshold, at_t1 = (np.asarray(x) for x in analysed)
    later = (c > threshold) & (c <= at_t1)
    # The rest of Σ has the size α/|c| and is reached from below at the rate 2α, α the slowest rate of growth of A.
    rates = np.linalg.eigvals(A).real
    slowest = np.min(rates[rates > 0], initial=np.inf)
    smallest = float(np.linalg.eigvalsh(np.asarray(start.covariance))[0])
    left = 0.0 if np.isinf(slowest) else slowest / smallest * np.exp(-slowest * t1)
    approaching = (c < 0) & (left > SETTLED / 2 * np.abs(c))
    return {
        "phase": phases,
        "mean_converges": means,
        "threshold": threshold,
        "threshold_at_t1": at_t1,
        "band": later | approaching,
    }


@eqx.filter_jit
def _analyse(A: Any, start: Gaussian, v: Any, c: Any, t1: float) -> tuple[Any, Any, Any, Any]:
    """Phases and whether means converge, (b, v); the threshold for ever and up to t1."""
    phases = gaussian.phase_of(A, start, c)
    means = jax.vmap(jax.vmap(lambda v, phase: gaussian.mean_converges(A, v, phase)), (None, 0))(v, phases)
    return phases, means, gaussian.blowup_threshold(A, start), gaussian.blowup_threshold(A, start, t1)


def _time_error(
    A: np.ndarray, start: Gaussian, v: np.ndarray, b: np.ndarray, times: np.ndarray, blown: np.ndarray
) -> float | None:
    """The largest relative error of the blow-up times, where they have a closed form: A = aI + skew."""
    a = float(np.trace(A)) / len(A)
    if np.abs((A + A.T) / 2 - a * np.eye(len(A))).max() > 1e-12 * (1 + abs(a)) or not blown.any():
        return None
    largest = float(np.linalg.eigvalsh(np.asarray(start.covariance))[-1])
    exact = np.asarray(gaussian.scalar_blowup_time(a, jnp.asarray(b[:, None] * v[None]), largest))
    known = blown & np.isfinite(exact)
    return float(np.max(np.abs(times / np.where(known, exact, 1) - 1), where=known, initial=0.0))


def _growth(squares: Any) -> Any:
    """ln of the last over the second of three squared sizes; ln VANISHED² for what has vanished."""
    floor, tiny = squares[0] * VANISHED**2, jnp.finfo(squares.dtype).tiny
    growth = jnp.log(jnp.maximum(squares[2], tiny) / jnp.maximum(squares[1], tiny))
    return jnp.where(squares[2] <= floor, 2 * jnp.log(VANISHED), growth)


@eqx.filter_jit
def _row(A: Any, v: Any, b: Any, start: Gaussian, options: dict[str, Any]) -> dict[str, Any]:
    """For one b and every v: how the run ended, and how ln tr Σ and ln |μ| changed over its second half."""
    eye = jnp.eye(A.shape[0], dtype=A.dtype)

    def one(v: Any) -> dict[str, Any]:
        sol = solve(MomentFlow(Constant(A=A, B=b * eye, V=v * eye)), start, **options)
        trace = jnp.sum(sol.states.factor**2, axis=(1, 2))
        length = jnp.sum(sol.states.mean**2, axis=1)
        return {
            "status": sol.status,
            "blowup_time": sol.t_end,
            "log_growth": _growth(trace),
            "mean_growth": _growth(length) / 2,
        }

    return jax.vmap(one)(v)
