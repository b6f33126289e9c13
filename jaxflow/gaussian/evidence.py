"""What states that were reached by simulation show about the regime: blow-up, growth, decay, rest. Host only."""

import numpy as np
import scipy.linalg
from numpy import ndarray

from jaxflow.gaussian.parts import HostParts, reach
from jaxflow.gaussian.theorems import Finding, small_gain

STABLE = 1e-7
"""Real parts and rates of change this small, relative to the matrices, decide nothing."""


def judge(parts: HostParts, before: ndarray, L: ndarray, t: float) -> Finding | None:
    """What the state L reached at time t, and the state before it, show; None where they show nothing yet."""
    growth = _growth(parts, before, L)
    if growth is not None:
        return growth
    Sigma = L @ L.T
    decays = small_gain(parts, Sigma)
    if decays is not None:
        return Finding("decays", f"from t = {t:g} on: {decays.reason}", decays.numbers)
    K = slope(parts, Sigma)
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
        rates.append(float(2 * np.sum(slope(parts, Sigma) * Sigma) / np.trace(Sigma)))
        directions.append(u[:, 0])
        sizes.append(float(s[0] ** 2))
    could = sizes[1] * reach(parts)
    steady = 0 < rates[1] < 1e-3 * could and abs(rates[1] - rates[0]) <= 0.05 * rates[1]
    straight = abs(directions[0] @ directions[1]) > 1 - 1e-3
    if not (steady and straight and sizes[1] > 3 * sizes[0]):
        return None
    numbers = {"rate": rates[1], "largest eigenvalue": sizes[1], "rate attention could reach": could}
    return Finding("grows", "Σ grows at a constant rate in a direction that attention does not act on", numbers)


def slope(parts: HostParts, Sigma: ndarray) -> ndarray:
    """K = A + Σ_h c_hV_hΣB_h, in NumPy: a verdict asks for it some thousand times."""
    return parts.A + np.einsum("hij,jk,hkl->il", parts.cV, Sigma, parts.B)


def tangent_spectrum(parts: HostParts, L: ndarray) -> ndarray:
    """Eigenvalues of the linearisation of Σ̇ at LLᵀ on the directions that a covariance of this rank can move in."""
    X = tangents(L)
    Sigma = L @ L.T
    half = slope(parts, Sigma) @ X + np.einsum("hij,njk,hkl,lm->nim", parts.cV, X, parts.B, Sigma, optimize=True)
    return np.linalg.eigvals(np.einsum("nij,mij->nm", X, half + np.swapaxes(half, 1, 2)))


def attracts_to_blow_up(parts: HostParts, L: ndarray) -> bool:
    """Whether the shape of a huge Σ = LLᵀ is one in which it must go on to infinity.

    A large covariance may turn round at any size: attention lets it grow while its directions drift away from where it
    grows. With S = Σ/tr Σ and A negligible, S' = F(S) = QS + SQᵀ − 2tr(QS)S in the time tr(Σ) dt, Q = Σ_h c_hV_hSB_h,
    and tr Σ grows at rate 2g, g = tr QS. If S is nearly stationary, g > 0, and F draws small disturbances of the same
    rank and trace in, then S stays and Σ blows up.
    """
    S = L @ L.T / np.sum(L**2)
    g = float(np.sum(attention(parts, S) * S))
    if g <= 0:
        return False
    spectrum = rescaled_spectrum(parts, L)
    if len(spectrum) == 0:
        return True
    top = float(np.real(spectrum).max())
    drift = float(np.linalg.norm(rescaled_velocity(parts, S)))
    return top < -1e-3 * g and drift < 0.1 * min(-top, 2 * g)


def attention(parts: HostParts, S: ndarray) -> ndarray:
    """Q = Σ_h c_hV_hSB_h."""
    return slope(parts, S) - parts.A


def rescaled_velocity(parts: HostParts, S: ndarray) -> ndarray:
    """F(S) = QS + SQᵀ − 2tr(QS)S."""
    Q = attention(parts, S)
    return Q @ S + S @ Q.T - 2 * np.sum(Q * S) * S


def rescaled_spectrum(parts: HostParts, L: ndarray) -> ndarray:
    """Eigenvalues of the linearisation of F at S = LLᵀ/tr LLᵀ, on what has the rank of L and trace zero."""
    S = L @ L.T / np.sum(L**2)
    X = tangents(L, traceless=S)
    if len(X) == 0:
        return np.zeros(0)
    Q = attention(parts, S)
    g = np.sum(Q * S)
    dQ = np.einsum("hij,njk,hkl->nil", parts.cV, X, parts.B, optimize=True)
    dg = np.einsum("nij,ij->n", dQ, S) + np.einsum("ij,nij->n", Q, X)
    half = dQ @ S + Q @ X
    dF = half + np.swapaxes(half, 1, 2) - 2 * dg[:, None, None] * S - 2 * g * X
    return np.linalg.eigvals(np.einsum("nij,mij->nm", X, dF))


def tangents(L: ndarray, traceless: ndarray | None = None) -> ndarray:
    """An orthonormal basis of the directions a covariance LLᵀ of this rank can move in, (m, d, d): with U a basis of
    the range of L, the symmetric UM + MᵀUᵀ; on request only those of trace zero, along `traceless` of trace one."""
    d = len(L)
    U = np.linalg.svd(L, full_matrices=False)[0]
    X = np.einsum("ia,bj->abij", U, np.eye(d)).reshape(-1, d, d)
    X = X + np.swapaxes(X, 1, 2)
    if traceless is not None:
        X = X - np.trace(X, axis1=1, axis2=2)[:, None, None] * traceless
    return scipy.linalg.orth(X.reshape(len(X), -1).T, rcond=1e-10).T.reshape(-1, d, d)
