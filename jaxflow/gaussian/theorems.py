"""What theorems alone say about the covariance under a constant layer, before anything is integrated. Host only.

Each function looks at one kind of layer and answers with a Finding, or None where it has nothing to say.
"""

from typing import Literal, NamedTuple

import numpy as np
import scipy.linalg
from numpy import ndarray

from jaxflow.gaussian.blowup import blowup_bounds, lyapunov_rates
from jaxflow.gaussian.commuting import common_spectrum, commuting_blowup_times
from jaxflow.gaussian.parts import HostParts, has_scalar_values, host_parts, parts_of, quadratic_part, reach
from jaxflow.measures import Gaussian
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction

Regime = Literal["decays", "settles", "grows", "blows_up", "undecided"]

MARGIN = 1e-9
"""A number this close to the threshold that decides, relative to it, decides nothing."""


class Finding(NamedTuple):
    """A regime, the sentence that gives the reason, the numbers in it, and where the covariance goes if it settles."""

    regime: Regime
    reason: str
    numbers: dict[str, float]
    limit: ndarray | None = None


def by_theorem(layer: Layer, start: Gaussian, direction: Direction | None) -> Finding | None:
    """The first theorem that applies."""
    parts = host_parts(layer, direction)
    L = np.asarray(start.factor)
    return (
        _without_attention(parts, L)
        or _commuting(layer, start, direction)
        or _riccati(parts, L)
        or small_gain(parts, L @ L.T)
        or _sign_definite(layer, parts, start, direction)
    )


def _without_attention(parts: HostParts, L: ndarray) -> Finding | None:
    if parts.cV.shape[0] and np.any(parts.cV) and np.any(parts.B):
        return None
    top = _abscissa(parts.A)
    size = np.linalg.norm(parts.A)
    numbers = {"largest real part of A": top}
    if top < -MARGIN * size:
        return Finding("decays", "no attention, and A is Hurwitz", numbers)
    if size == 0:
        return Finding("settles", "nothing acts on the covariance", numbers, L @ L.T)
    if top > MARGIN * size and np.linalg.norm(_growing_projector(parts.A) @ L) > MARGIN * np.linalg.norm(L):
        return Finding("grows", "no attention, and the start has a part in the growing directions of A", numbers)
    return None


def _commuting(layer: Layer, start: Gaussian, direction: Direction | None) -> Finding | None:
    spectrum = common_spectrum(layer, start, direction=direction)
    if spectrum is None:
        return None
    U, a, _, c, l0 = (np.asarray(x) for x in spectrum)
    moving = l0 > 0
    U, a, c, l0 = U[:, moving], a[moving], c[moving], l0[moving]
    scale = np.abs(a) + np.abs(c * l0)
    threshold = a + c * l0
    if np.any((c > 0) & (np.abs(threshold) <= MARGIN * scale)) or np.any((np.abs(a) <= MARGIN * scale) & (a != 0)):
        return None
    times = np.asarray(commuting_blowup_times(spectrum))[moving]
    if np.isfinite(times).any():
        return Finding(
            "blows_up", "the matrices commute, and one eigenvalue has cℓ₀ > 0 and a > −cℓ₀",
            {"blow-up time": float(times.min())},
        )  # fmt: skip
    if np.any((c == 0) & (a > 0)):
        return Finding(
            "grows",
            "the matrices commute, and attention does not act on a growing eigenvalue",
            {"rate": float(a[c == 0].max())},
        )
    resting = ((c < 0) & (a > 0)) | ((c == 0) & (a == 0))
    numbers = {"largest a": float(a.max()), "largest c": float(c.max())}
    if resting.any():
        limits = np.where(resting, np.where(c < 0, -a / np.where(c < 0, c, 1), l0), 0)
        reason = "the matrices commute: ℓ_i goes to a/|c| where a > 0 > c, stays where a = c = 0, else goes to 0"
        return Finding("settles", reason, numbers, (U * limits) @ U.T)
    return Finding("decays", "the matrices commute, and every eigenvalue of Σ goes to 0", numbers)


def _riccati(parts: HostParts, L: ndarray) -> Finding | None:
    """V_h = v_hI: Σ(t) = E L (I − LᵀW(t)L)^{-1} Lᵀ Eᵀ."""
    if not has_scalar_values(parts):
        return None
    A, G = parts.A, np.asarray(quadratic_part(parts))
    d = len(A)
    values = np.linalg.eigvals(A)
    size = max(float(np.abs(values).max()), np.finfo(float).tiny)
    g = np.linalg.eigvalsh(G)
    on_axis = bool(np.any(np.abs(values.real) <= 1e-7 * size)) and np.any(A)
    if on_axis:
        return None
    if not np.any(A):
        M = np.linalg.eigvalsh(L.T @ G @ L)
        scale = np.abs(M).max()
        if M[-1] > MARGIN * scale:
            return Finding("blows_up", "V = vI, A = 0 and λmax(L₀ᵀGL₀) > 0", {"blow-up time": float(1 / (2 * M[-1]))})
        if np.any((np.abs(M) <= MARGIN * scale) & (np.abs(M) > len(M) * np.finfo(float).eps * scale)):
            return None
        if np.all(-MARGIN * scale > M):
            return Finding(
                "decays", "V = vI, A = 0 and L₀ᵀGL₀ < 0: Σ shrinks as 1/t", {"largest eigenvalue": float(M[-1])}
            )
        unseen = np.linalg.eigh(L.T @ G @ L)[1][:, np.abs(M) <= len(M) * np.finfo(float).eps * scale]
        return Finding(
            "settles", "V = vI, A = 0: what attention does not see stays, the rest shrinks as 1/t",
            {"directions that stay": float(unseen.shape[1])}, L @ unseen @ unseen.T @ L.T,
        )  # fmt: skip
    hurwitz = bool(np.all(values.real < 0))
    bounded = g[-1] <= 0
    if hurwitz:
        W = scipy.linalg.solve_continuous_lyapunov(A.T, -2 * G)
        top = float(np.linalg.eigvalsh(L.T @ W @ L)[-1])
        numbers = {"λmax(L₀ᵀW∞L₀)": top}
        if top > 1 + MARGIN:
            return Finding("blows_up", "V = vI, A Hurwitz: λmax(L₀ᵀW(t)L₀) starts at 0 and ends above 1", numbers)
        if bounded or (g[0] >= 0 and top < 1 - MARGIN):
            return Finding("decays", "V = vI, A Hurwitz: λmax(L₀ᵀW(t)L₀) never reaches 1, and e^{At} → 0", numbers)
        return None
    if L.shape[1] < d:
        return None
    # Full rank and growing directions.
    Pi = _growing_projector(A)
    k = round(float(np.trace(Pi)))
    U = scipy.linalg.orth(Pi)
    growing = U.T @ A @ U
    N = scipy.linalg.solve_continuous_lyapunov(growing.T, -2 * U.T @ G @ U)
    n = np.linalg.eigvalsh(N)
    numbers = {"growing directions": float(k), "smallest eigenvalue of N": float(n[0])}
    scale = np.abs(n).max() if np.any(n) else 1.0
    if bounded and n[0] > MARGIN * scale:
        limit = U @ np.linalg.inv(N) @ U.T
        reason = "V = vI, G ≤ 0 and N > 0 on the growing directions of A: the Bernoulli equilibrium attracts"
        return Finding("settles", reason, numbers, limit)
    if n[0] < -MARGIN * scale:
        return Finding("blows_up", "V = vI: on the growing directions of A, L₀ᵀW(t)L₀ becomes unbounded above", numbers)
    return None


def small_gain(parts: HostParts, Sigma: ndarray) -> Finding | None:
    """A Hurwitz, AᵀP + PA = −I, y = tr PΣ: y' ≤ −tr Σ (1 − 2‖P‖γ y/λmin(P)), γ = Σ‖c_hV_h‖‖B_h‖. Below 1, Σ decays."""
    if _abscissa(parts.A) >= 0:
        return None
    P = scipy.linalg.solve_continuous_lyapunov(parts.A.T, -np.eye(len(parts.A)))
    p = np.linalg.eigvalsh(P)
    gamma = reach(parts)
    gain = float(2 * p[-1] * gamma * np.trace(P @ Sigma) / p[0])
    if p[0] <= 0 or gain < 0 or gain >= 1:
        return None
    return Finding("decays", "A is Hurwitz and Σ is too small for attention to matter: gain below 1", {"gain": gain})


def _sign_definite(layer: Layer, parts: HostParts, start: Gaussian, direction: Direction | None) -> Finding | None:
    if parts.cV.shape[0] != 1 or start.rank < len(parts.A):
        return None
    lower, upper = (float(x) for x in blowup_bounds(layer, start, direction=direction))
    if np.isfinite(upper):
        return Finding(
            "blows_up", "V definite, V and B of one sign: tr(|V|^{-1}Σ) exceeds a scalar solution that blows up",
            {"not before": lower, "not after": upper},
        )  # fmt: skip
    kappa, rate, y0, definite = (
        float(x) for x in lyapunov_rates(parts_of(layer, direction), start.covariance, sign=-1.0)
    )
    if definite and kappa <= 0:
        return Finding(
            "decays", "V definite, V and B of opposite signs, κ ≤ 0: tr(|V|^{-1}Σ) is below one that goes to 0",
            {"κ": kappa, "b v²/d": rate, "y₀": y0},
        )  # fmt: skip
    return None


def _abscissa(A: ndarray) -> float:
    return float(np.linalg.eigvals(A).real.max())


def _growing_projector(A: ndarray) -> ndarray:
    """Onto the invariant subspace of Re λ > 0 along that of Re λ < 0."""
    return (np.eye(len(A)) + np.asarray(scipy.linalg.signm(A))) / 2
