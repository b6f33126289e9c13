"""`kind = "closure"`: how far do finitely many tokens follow the moments, as attention grows stronger?

gain = Σᵢ wᵢ⟨a(xᵢ) − ā, ΣB(xᵢ − x̄)⟩ / Σᵢ wᵢ|ΣB(xᵢ − x̄)|²

is the slope of the measured attention map against the ideal one, a(x) = μ + ΣBx, which infinitely many tokens have.
Along time: W₂ at t1 between the moments of the tokens and the moment flow that starts from these tokens' own mean and
covariance. Both take the same steps, which commute with affine maps, so that only the closure tells them apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow.errors import InputError
from jaxflow.experiments import build
from jaxflow.experiments.fit import gaussian_of, kappa
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.schema import Closure
from jaxflow.gaussian import MomentFlow
from jaxflow.geometry import Euclidean
from jaxflow.measures import Cloud, Gaussian, gauss_hermite, sample
from jaxflow.particles import AttentionFlow
from jaxflow.solve import Status, solve
from jaxflow.transport import wasserstein_gaussian
from jaxflow.weights import Constant

TOLERANCE = 0.05
"""The closure counts as good up to the last strength before the gain first misses 1 by more than this."""

ROUNDING = 1e-10
"""Below this share of ‖B‖ tr Σ a strength of attention is zero."""


def job(experiment: Closure, *, folder: Path, precision: str) -> "ClosureJob":
    """The job of a checked config.

    Raises:
        InputError: attention does not see the start, so that no factor gives it a strength.
    """
    start = build.gaussian(experiment.start, where="start", folder=folder, precision=precision)
    key = jax.random.key(experiment.seed)
    weights = build.schedule(experiment.weights, key, dim=start.dim, precision=precision)
    strength = float(kappa(start.factor, weights.at(0.0).B))
    size = float(jnp.linalg.norm(weights.at(0.0).B) * jnp.sum(start.factor**2))
    if not strength > ROUNDING * size:
        raise InputError(
            "attention does not act within the range of the start's covariance",
            where="weights.B",
            got=f"‖Σ^½BΣ^½‖ = {strength:.3g}",
            expected="a positive strength to scale",
        )
    return ClosureJob(experiment, start, AttentionFlow(weights, geometry=Euclidean()), build.stream(key, "tokens"))


@dataclass(frozen=True)
class ClosureJob:
    """Every cloud at every strength, one such pair in a chunk."""

    experiment: Closure
    start: Gaussian
    flow: AttentionFlow
    key: Any

    @property
    def clouds(self) -> list[str]:
        """The names of the clouds: `n400` for 400 random tokens, `nodes24` for 24 nodes per axis."""
        sweep = self.experiment.sweep
        return [*(f"n{n}" for n in sweep.n), *(f"nodes{nodes}" for nodes in sweep.nodes)]

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `solve`, for tokens and moments alike."""
        steps = self.experiment.solve
        return {"t1": steps.t1, "dt": steps.dt, "method": build.METHODS[steps.method]}

    def describe(self) -> dict[str, str]:
        sweep = self.experiment.sweep
        return {
            "dimension": str(self.start.dim),
            "strengths": f"{len(sweep.kappa)}, from {sweep.kappa[0]:g} to {sweep.kappa[-1]:g}",
            "clouds": ", ".join(self.clouds),
            "repeats": str(sweep.repeats),
            "method": type(self.options["method"]).__name__,
        }

    def begin(self) -> State:
        for nodes in self.experiment.sweep.nodes:
            gauss_hermite(self.start, nodes=nodes)
        return {"done": np.array(0)}

    def advance(self, state: State) -> tuple[State, Progress]:
        kappas, done = self.experiment.sweep.kappa, int(state["done"])
        name, strength = self.clouds[done // len(kappas)], kappas[done % len(kappas)]
        flow = self._scaled(strength)
        clouds = list(self._draw(name))
        pairs = [_measure(flow, cloud, self.start, self.options) for cloud in clouds]
        gains, distances = (np.array([float(x) for x in values])[None] for values in zip(*pairs))
        state = {**state, "done": np.array(done + 1)}
        for key, row in ((f"gain_{name}", gains), (f"w2_{name}", distances)):
            state[key] = np.concatenate([state[key], row]) if key in state else row
        metrics = {"kappa": strength, "tokens": float(len(clouds[0].points)), "gain": float(gains.mean())}
        return state, Progress(done + 1, len(self.clouds) * len(kappas), "measurements", metrics)

    def _scaled(self, strength: float) -> AttentionFlow:
        """The flow with B scaled so that κ_eff of the start is this strength."""
        layer = self.flow.weights.at(0.0)
        assert layer.B is not None  # the checks came before
        factor = strength / kappa(self.start.factor, layer.B)
        weights = Constant(B=factor * layer.B, V=layer.V, A=layer.A, b=layer.b)
        return AttentionFlow(weights, geometry=self.flow.geometry)

    def _draw(self, name: str) -> Iterator[Cloud]:
        """The clouds of this name; the same ones at every strength."""
        if name.startswith("nodes"):
            yield gauss_hermite(self.start, nodes=int(name.removeprefix("nodes")))
            return
        for repeat in range(self.experiment.sweep.repeats):
            yield sample(self.start, jax.random.fold_in(self.key, repeat), n=int(name.removeprefix("n")))

    def finish(self, state: State) -> Run:
        kappas = self.experiment.sweep.kappa
        summary: dict[str, Any] = {"status": "done", "kappa": list(kappas)}
        for name in self.clouds:
            gains = state[f"gain_{name}"]
            summary[f"kappa_good_{name}"] = _last_good(kappas, gains.mean(1))
            for key in (f"gain_{name}", f"w2_{name}"):
                summary[key] = _numbers(state[key].mean(1))
                if gains.shape[1] > 1:
                    summary[f"{key}_std"] = _numbers(state[key].std(1, ddof=1))
        if any(x is None for name in self.clouds for x in summary[f"w2_{name}"]):
            summary["warning"] = "w2 is null where the moments blow up before t1, which no finite number of tokens does"
        arrays = {name: x for name, x in state.items() if name != "done"}
        return Run(summary, {"kappa": np.array(kappas), **arrays})


def _last_good(kappas: list[float], gains: np.ndarray) -> float | None:
    """The last strength before the gain first misses 1 by more than TOLERANCE; None if the first one does."""
    good = np.cumsum(~(np.abs(gains - 1) <= TOLERANCE)) == 0
    return kappas[int(good.sum()) - 1] if good.any() else None


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(x) if np.isfinite(x) else None for x in values]


@eqx.filter_jit
def _measure(flow: AttentionFlow, cloud: Cloud, start: Gaussian, options: dict[str, Any]) -> tuple[Any, Any]:
    """The gain of the attention map of this cloud, and W₂ at t1; NaN where the moments blow up before."""
    layer = flow.weights.at(0.0)
    tilted = flow.tilt(cloud, layer)
    assert tilted is not None
    assert layer.B is not None
    ideal = jnp.einsum("ij,hjk,nk->hni", start.covariance, layer.B, cloud.points)
    measured, ideal = (x - jnp.einsum("n,hni->hi", cloud.weights, x)[:, None] for x in (tilted.mean, ideal))
    weights = cloud.weights[None, :, None]
    gain = jnp.sum(weights * measured * ideal) / jnp.sum(weights * ideal * ideal)
    tokens = solve(flow, cloud, **options).final
    moments = solve(MomentFlow(flow.weights), gaussian_of(cloud), **options)
    distance = wasserstein_gaussian(gaussian_of(tokens), moments.final)
    return gain, jnp.where(moments.status == Status.done, distance, jnp.nan)
