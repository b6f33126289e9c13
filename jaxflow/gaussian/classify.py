"""Does the covariance decay, settle, grow or blow up? By theorem where one applies, else by following the flow."""

from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Float
from numpy import ndarray

from jaxflow._checks import check_positive
from jaxflow.gaussian.ensemble import ensemble
from jaxflow.gaussian.parts import HostParts, check_fits, host_parts
from jaxflow.gaussian.theorems import Finding, Regime, by_theorem, small_gain
from jaxflow.measures import Gaussian
from jaxflow.solve.solution import status_name
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction

STABLE = 1e-7
"""Real parts and rates of change this small, relative to the matrices, decide nothing."""

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
        InputError: the start does not fit the layer.

    Source: arXiv:2606.07600, asymptotics; thousands of random layers are judged in tests/gaussian/test_classify.py.
    """
    check_fits(layer, start)
    layers, starts = jax.tree.map(lambda x: x[None], (layer, start))
    return classify_many(layers, starts, direction=direction, horizon=horizon)[0]


def classify_many(
    layers: Layer, starts: Gaussian, *, direction: Direction | None = None, horizon: float = 400.0
) -> list[Verdict]:
    """`classify` for N layers and starts with a leading axis; the flows are followed side by side."""
    check_positive(horizon, "horizon")
    N = starts.mean.shape[0]
    single = [_pick((layers, starts), i) for i in range(N)]
    parts = [host_parts(layer, direction) for layer, _ in single]
    findings = [by_theorem(layer, start, direction) for layer, start in single]
    proved = [finding is not None for finding in findings]
    # The mean does not act back on the covariance, and may run off while that rests: it is left out.
    alone = eqx.tree_at(lambda x: x.b, layers, None, is_leaf=lambda x: x is None)
    mean, factor, t = jnp.zeros_like(starts.mean), np.array(starts.factor), np.zeros(N)
    blowup, before = np.full(N, np.inf), list(factor)
    for length, max_steps in STAGES:
        # Theorems do not always give the time of a blow-up.
        asked = [i for i in range(N) if findings[i] is None or _time_missing(findings[i], blowup[i])]
        for i, (outcome, t_end, end) in zip(
            asked, _follow(alone, Gaussian(mean, jnp.asarray(factor)), asked, length * horizon, max_steps, direction)
        ):
            before[i], t[i] = factor[i].copy(), t[i] + t_end
            factor[i] = end
            if outcome == "blow_up":
                blowup[i] = t[i]
            if findings[i] is None:
                findings[i] = _judge(parts[i], before[i], factor[i], outcome, t[i])
    return [_verdict(*found) for found in zip(findings, proved, blowup.tolist(), parts)]


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
    layers: Layer, starts: Gaussian, asked: list[int], length: float, max_steps: int, direction: Direction | None
) -> list[tuple[str, float, ndarray]]:
    """(outcome, time, factor) of the systems asked for; their number is rounded up, so that programs are shared."""
    if not asked:
        return []
    size = 1 << (len(asked) - 1).bit_length()
    index = np.asarray(asked + asked[-1:] * (size - len(asked)))
    some, begun = _pick((layers, starts), index)
    end = _run(some, begun, length, max_steps, direction)
    outcomes = [status_name(_pick(end.status, k)) for k in range(len(asked))]
    arrays = (np.asarray(x) for x in (end.t_end, end.final.factor))
    return [(outcome, float(t), L) for outcome, t, L in zip(outcomes, *arrays)]


def _judge(parts: HostParts, before: ndarray, L: ndarray, outcome: str, t: float) -> Finding | None:
    """What the state L reached at time t, and the state before it, show; None where they show nothing yet."""
    if outcome == "blow_up":
        return Finding("blows_up", "the flow was followed to its blow-up", {"blow-up time": float(t)})
    growth = _growth(parts, before, L)
    if growth is not None:
        return growth
    Sigma = L @ L.T
    decays = small_gain(parts, Sigma)
    if decays is not None:
        return Finding("decays", f"from t = {t:g} on: {decays.reason}", decays.numbers)
    K = _slope(parts, Sigma)
    size = np.linalg.norm(parts.A) + np.linalg.norm(K)
    rate = float(np.linalg.norm(K @ Sigma + Sigma @ K.T) / (size * np.linalg.norm(Sigma)))
    if rate > STABLE:
        return None
    top = float(np.real(tangent_spectrum(parts, L)).max())
    if top < -STABLE * size:
        numbers = {"relative rate of change": rate, "largest real part": top, "at time": float(t)}
        return Finding(
            "settles", "the flow is at rest, and small disturbances of the same rank die out", numbers, Sigma
        )
    return None


def _growth(parts: HostParts, before: ndarray, L: ndarray) -> Finding | None:
    """Whether Σ grows at a constant rate in a constant direction, attention having turned away from it.

    Before a blow-up the rate itself grows like |Σ|. Here it must stay within 5 % while |Σ| triples or more, and be
    below a thousandth of what attention could do.
    """
    rates, directions, sizes = [], [], []
    for X in (before, L):
        u, s, _ = np.linalg.svd(X, full_matrices=False)
        Sigma = X @ X.T
        rates.append(float(2 * np.sum(_slope(parts, Sigma) * Sigma) / np.trace(Sigma)))
        directions.append(u[:, 0])
        sizes.append(float(s[0] ** 2))
    could = sizes[1] * float(sum(np.linalg.norm(V, 2) * np.linalg.norm(B, 2) for V, B in zip(parts.cV, parts.B)))
    steady = 0 < rates[1] < 1e-3 * could and abs(rates[1] - rates[0]) <= 0.05 * rates[1]
    straight = abs(directions[0] @ directions[1]) > 1 - 1e-3
    if not (steady and straight and sizes[1] > 3 * sizes[0]):
        return None
    numbers = {"rate": rates[1], "largest eigenvalue": sizes[1], "rate attention could reach": could}
    return Finding("grows", "Σ grows at a constant rate in a direction that attention does not act on", numbers)


def _slope(parts: HostParts, Sigma: ndarray) -> ndarray:
    """K = A + Σ_h c_hV_hΣB_h."""
    return parts.A + np.einsum("hij,jk,hkl->il", parts.cV, Sigma, parts.B)


def tangent_spectrum(parts: HostParts, L: ndarray) -> ndarray:
    """Eigenvalues of the linearisation of Σ̇ on the directions that a covariance of this rank can move in: with U an
    orthonormal basis of the range of L, the symmetric X = UM + MᵀUᵀ."""
    d = len(L)
    U = np.linalg.svd(L, full_matrices=False)[0]
    Q = np.einsum("ia,bj->abij", U, np.eye(d)).reshape(-1, d, d)
    Q = scipy.linalg.orth((Q + np.swapaxes(Q, 1, 2)).reshape(len(Q), -1).T, rcond=1e-10)
    Sigma = L @ L.T
    K = _slope(parts, Sigma)
    X = Q.T.reshape(-1, d, d)
    R = np.einsum("ij,njk->nik", K, X) + np.einsum("hij,njk,hkl,lm->nim", parts.cV, X, parts.B, Sigma, optimize=True)
    J = Q.T @ (R + np.swapaxes(R, 1, 2)).reshape(len(X), -1).T
    return np.linalg.eigvals(J)


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
    M = _slope(parts, limit) + parts.cV.sum(0)
    top, size = np.linalg.eigvals(M).real.max(), np.linalg.norm(M)
    if abs(top) <= STABLE * size:
        return "undecided"
    return "settles" if top < 0 else "diverges"
