"""Does the covariance decay, settle, grow or blow up? By theorem where one applies, else by following the flow."""

from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from jaxflow._checks import check_positive
from jaxflow.errors import InputError
from jaxflow.gaussian.ensemble import ensemble
from jaxflow.gaussian.evidence import STABLE, attracts_to_blow_up, judge, slope
from jaxflow.gaussian.parts import HostParts, check_fits, host_parts, reach
from jaxflow.gaussian.theorems import Finding, Regime, by_theorem
from jaxflow.measures import Gaussian
from jaxflow.solve.solution import status_name
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction

LARGEST = 24
"""Largest dimension; the spectra that decide are those of matrices of size d(d+1)/2."""

ZOOMS = 3
"""How often a huge covariance is scaled down and followed further before its blow-up is believed."""

STAGES = ((1 / 16, 1500), (1.0, 12_000))
"""The flow is followed twice: for so much of the horizon, in so many steps. Where Σ grows without blow-up it becomes
stiff; the steps end before the time does, with Σ larger in proportion to their number."""


@final
class Verdict(eqx.Module):
    """What becomes of a Gaussian under one constant layer.

    Attributes:
        regime: of the covariance. "decays": Σ → 0. "settles": Σ converges, not to 0. "grows": |Σ| → ∞, but only as
            t → ∞. "blows_up": |Σ| → ∞ in finite time. "undecided": none of these could be shown; `reason` says why.
        mean: "settles" or "diverges" where the covariance settles or decays, else "undecided".
        reason: one sentence.
        numbers: what it rests on.
        evidence: "theorem", or "simulation" (followed at 1e-10, and an end state whose linearisation decides).
        blowup_time: t*; inf unless the regime is "blows_up".
        limit: where the covariance goes, (d, d), if it settles or decays; else None.
    """

    regime: Regime = eqx.field(static=True)
    mean: Literal["settles", "diverges", "undecided"] = eqx.field(static=True)
    reason: str = eqx.field(static=True)
    numbers: dict[str, float] = eqx.field(static=True)
    evidence: Literal["theorem", "simulation"] = eqx.field(static=True)
    blowup_time: float = eqx.field(static=True)
    limit: Float[np.ndarray, "d d"] | None


def classify(layer: Layer, start: Gaussian, *, direction: Direction | None = None, horizon: float = 400.0) -> Verdict:
    """The Verdict on one layer and one start. Host only.

    Args:
        layer: any constant layer.
        start: any rank.
        direction: for tied heads.
        horizon: how long the flow is followed at most, where theorems do not decide.

    Raises:
        InputError: the start does not fit the layer, or d > 24.

    Cost: milliseconds where a theorem decides; else the flow, compiled once for each shape.

    Source: arXiv:2606.07600, asymptotics; thousands of random layers were judged in tests/gaussian/test_classify.py.
    """
    check_fits(layer, start)
    layers, starts = jax.tree.map(lambda x: x[None], (layer, start))
    return classify_many(layers, starts, direction=direction, horizon=horizon)[0]


def classify_many(
    layers: Layer, starts: Gaussian, *, direction: Direction | None = None, horizon: float = 400.0
) -> list[Verdict]:
    """`classify` for N layers and starts with a leading axis; the flows are followed side by side."""
    check_positive(horizon, "horizon")
    if starts.dim > LARGEST:
        raise InputError(
            "is too large for a verdict", where="start", got=f"d = {starts.dim}", expected=f"d ≤ {LARGEST}",
            fix="V = vI: gaussian.bernoulli and gaussian.riccati_blowup_time at any d; otherwise follow jf.solve",
        )  # fmt: skip
    N = starts.mean.shape[0]
    single = [_pick((layers, starts), i) for i in range(N)]
    parts = [host_parts(layer, direction) for layer, _ in single]
    findings = [by_theorem(layer, start, direction) for layer, start in single]
    proved = [finding is not None for finding in findings]
    # The mean does not act back on the covariance, and may run off while that rests: it is left out.
    layers = eqx.tree_at(lambda x: x.b, layers, None, is_leaf=lambda x: x is None)
    factor, t, blowup = np.array(starts.factor), np.zeros(N), np.full(N, np.inf)
    for length, max_steps in STAGES:
        # Theorems do not always give the time of a blow-up.
        asked = [i for i in range(N) if findings[i] is None or _time_missing(findings[i], blowup[i])]
        before = factor.copy()
        found = _follow(layers, factor, asked, length * horizon, max_steps, direction)
        for i, (_, t_end, L) in zip(asked, found):
            t[i], factor[i] = t[i] + t_end, L
        huge = [i for i, (outcome, *_) in zip(asked, found) if outcome == "blow_up"]
        sure = [i for i in huge if attracts_to_blow_up(parts[i], factor[i])]
        sure += _zoom(layers, parts, factor, [i for i in huge if i not in sure], direction)
        blowup[sure] = t[sure]
        for i in asked:
            if findings[i] is not None:
                continue
            if np.isfinite(blowup[i]):
                findings[i] = Finding("blows_up", "the flow was followed to its blow-up", {"blow-up time": float(t[i])})
            else:
                findings[i] = judge(parts[i], before[i], factor[i], t[i])
    return [_verdict(*found) for found in zip(findings, proved, blowup.tolist(), parts)]


def _zoom(
    layers: Layer, parts: list[HostParts], factor: ndarray, asked: list[int], direction: Direction | None
) -> list[int]:
    """Which of these huge covariances still grow after being scaled down and followed towards blow-up again and again.

    Scaling Σ = σΣ̃, t = t̃/(γσ) changes A to A/(γσ) and B to B/γ. `factor` of those that turned is updated.
    """
    going = asked
    for _ in range(ZOOMS if asked else 0):
        sigma = np.sum(factor**2, axis=(1, 2))
        gamma = np.array([reach(p) for p in parts])
        scaled = eqx.tree_at(lambda x: x.B, layers, layers.B / np.where(gamma > 0, gamma, 1)[:, None, None, None])
        if layers.A is not None:
            small = layers.A / np.where(gamma > 0, gamma * sigma, 1)[:, None, None]
            scaled = eqx.tree_at(lambda x: x.A, scaled, small)
        found = _follow(scaled, factor / np.sqrt(sigma)[:, None, None], going, 1e4, STAGES[0][1], direction)
        for i, (*_, L) in zip(going, found):
            factor[i] = L * np.sqrt(sigma[i])
        going = [i for i, (outcome, *_) in zip(going, found) if outcome == "blow_up"]
    return going


def _pick(batch: Any, index: Any) -> Any:
    """Entries of a leading axis."""
    return jax.tree.map(lambda x: x[index], batch)


def _time_missing(finding: Finding | None, time: float) -> bool:
    if finding is None or finding.regime != "blows_up":
        return False
    return "blow-up time" not in finding.numbers and not np.isfinite(time)


@eqx.filter_jit
def _run(layers: Layer, starts: Gaussian, length: float, max_steps: int, direction: Direction | None) -> Any:
    # Compiled here although nothing else below the application floor is: a verdict is host code, and eager it is slow.
    return ensemble(layers, starts, t1=length, direction=direction, rtol=1e-10, atol=1e-14, max_steps=max_steps)


def _follow(
    layers: Layer, factor: ndarray, asked: list[int], length: float, max_steps: int, direction: Direction | None
) -> list[tuple[str, float, ndarray]]:
    """(outcome, time, factor) of the systems asked for; their number is rounded up, so that programs are shared."""
    if not asked:
        return []
    size = 1 << (len(asked) - 1).bit_length()
    index = np.asarray(asked + asked[-1:] * (size - len(asked)))
    some, L = _pick((layers, jnp.asarray(factor)), index)
    end = _run(some, Gaussian(jnp.zeros_like(L[..., 0]), L), length, max_steps, direction)
    outcomes = [status_name(_pick(end.status, k)) for k in range(len(asked))]
    arrays = (np.asarray(x) for x in (end.t_end, end.final.factor))
    return [(outcome, float(t), L) for outcome, t, L in zip(outcomes, *arrays)]


def _verdict(finding: Finding | None, theorem: bool, time: float, parts: HostParts) -> Verdict:
    if finding is None:
        reason = "no theorem applies, and the flow neither blows up, nor decays, nor comes to rest up to the horizon"
        return Verdict("undecided", "undecided", reason, {}, "simulation", np.inf, None)
    regime, reason, numbers, limit = finding
    limit = np.zeros_like(parts.A) if regime == "decays" else limit
    time = numbers.get("blow-up time", time) if regime == "blows_up" else np.inf
    mean = "undecided" if limit is None else _mean(parts, limit)
    return Verdict(regime, mean, reason, numbers, "theorem" if theorem else "simulation", time, limit)


def _mean(parts: HostParts, limit: ndarray) -> Literal["settles", "diverges", "undecided"]:
    """By the spectrum of A + ΣcV + ΣcVΣ∞B, the matrix of the mean's own equation once the covariance has settled."""
    M = slope(parts, limit) + parts.cV.sum(0)
    top, size = np.linalg.eigvals(M).real.max(), np.linalg.norm(M)
    if abs(top) <= STABLE * size:
        return "undecided"
    return "settles" if top < 0 else "diverges"
