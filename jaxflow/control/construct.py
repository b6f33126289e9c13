"""Linear layers in closed form, exact without any search. Σᵢ = LᵢLᵢᵀ; start 0, target 1; horizon t₁.

C1, full rank: one constant linear layer. With T the optimal transport map between the covariances,
    T = Σ₀^{−½}(Σ₀^{½}Σ₁Σ₀^{½})^{½}Σ₀^{−½},   A = log(T)/t₁,   b = (∫₀^{t₁} e^{As}ds)^{-1} (μ₁ − T μ₀).
C2, any rank: two constant linear layers. With G L₀ = L₁R, R orthogonal, det G > 0, G = R_p S its polar decomposition,
    A = log(S)/τ until τ, then A = log(R_p)/(t₁ − τ).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import schur

from jaxflow._checks import check_positive
from jaxflow.control.reachability import check_reachable
from jaxflow.errors import InputError
from jaxflow.linalg import polar, sqrtm, symmetrize
from jaxflow.measures import Gaussian
from jaxflow.weights import Piecewise


def constant_linear(start: Gaussian, target: Gaussian, *, t1: float, segments: int = 1) -> Piecewise:
    """C1: the constant layer (A symmetric, b) that carries start to target exactly in time t1.

    A = log(T)/t₁, T the optimal transport map between the covariances; b makes up for the means.

    Args:
        start, target: Gaussians of full rank, means (d,), factors (d, d).
        t1: the horizon.
        segments: the layer is repeated on so many equal pieces.

    Returns:
        A Piecewise of A (segments, d, d) and b (segments, d).

    Raises:
        UnreachableError: ranks or dimensions differ. InputError: the common rank is not full.

    Full rank only; `two_piece_linear` takes any. Accuracy is that of the symmetric square root, about ε·cond(Σ₀).
    Cost O(d³). Source: arXiv:2606.07600, reachability for full rank.
    """
    check_reachable(start, target, "ABVb")
    d = start.dim
    if start.rank < d:
        raise InputError(
            "applies to full rank only",
            where="method",
            got=f"constructive with rank {start.rank} in dimension {d}",
            fix='take two_piece_linear, or method="gauss-newton"',
        )
    root = sqrtm(start.covariance)
    middle = sqrtm(root @ target.covariance @ root)
    T = symmetrize(jnp.linalg.solve(root, jnp.linalg.solve(root, middle).T))
    A = _log_positive(T) / t1
    b = _constant_bias(A, start.mean, target.mean, t1)
    return Piecewise(A=jnp.tile(A, (segments, 1, 1)), b=jnp.tile(b, (segments, 1)), t1=t1)


def two_piece_linear(start: Gaussian, target: Gaussian, *, t1: float, segments: int = 2) -> Piecewise:
    """C2: two constant linear layers, a stretch and then a rotation, that carry start to target exactly; any rank.

    G = [L₁R, U₁][L₀, U₀]^{-1} with orthonormal complements Uᵢ of the ranges and R orthogonal; G = R_p S with S > 0 and
    R_p a rotation; A = log(S)/τ on [0, τ] and log(R_p)/(t₁ − τ) on [τ, t₁]. The bias of the first layer brings the mean
    to where the rotation then carries it to μ₁.

    Args:
        start, target: Gaussians of one rank r, means (d,), factors (d, r), 1 ≤ r ≤ d.
        t1: the horizon.
        segments: at least 2; the first half (rounded down) stretches, the rest rotates.

    Returns:
        A Piecewise of A (segments, d, d) and b (segments, d).

    Raises:
        UnreachableError: ranks or dimensions differ. InputError: fewer than two segments, or a horizon ≤ 0.

    R brings the factors as close as it can; where det G < 0 one column of U₁ changes sign (r < d), or one of R (r = d).
    A rotation has a real logarithm, not unique at angle π; the principal one is taken. Accuracy about
    ε·cond(L₀)·cond(L₁). Needs concrete numbers (log R_p by a real Schur form on the host). Cost O(d³).
    Source: arXiv:2606.07600, reachability for any rank.
    """
    check_reachable(start, target, "ABVb")
    check_positive(t1, "t1")
    if segments < 2:
        raise InputError(
            "must be at least 2", where="segments", got=segments, fix="stretch and rotation are two layers"
        )
    L0, L1 = np.asarray(start.factor), np.asarray(target.factor)
    d, r = L0.shape
    R = np.asarray(polar(jnp.asarray(L1.T @ L0)))
    U0, U1 = _complement(L0), _complement(L1)
    if r < d:
        # The complements, too, as close to each other as they can be.
        X, _, Yt = np.linalg.svd(U1.T @ U0)
        U1 = U1 @ (X @ Yt)
    from_, to = np.concatenate([L0, U0], 1), np.concatenate([L1 @ R, U1], 1)
    if np.linalg.slogdet(to)[0] * np.linalg.slogdet(from_)[0] < 0:
        if r < d:
            to[:, r] *= -1
        else:
            X, s, Yt = np.linalg.svd(L1.T @ L0)
            X[:, -1] *= -1
            to = L1 @ (X @ Yt)
    G = to @ np.linalg.inv(from_)
    U, s, Vt = np.linalg.svd(G)
    first = segments // 2
    tau = t1 * first / segments
    dtype = start.mean.dtype
    stretch = jnp.asarray((Vt.T * np.log(s)[None, :]) @ Vt / tau, dtype)
    turn = jnp.asarray(_log_rotation(U @ Vt) / (t1 - tau), dtype)
    between = jnp.asarray((U @ Vt).T, dtype) @ target.mean
    A = [stretch] * first + [turn] * (segments - first)
    b0 = _constant_bias(stretch, start.mean, between, tau)
    b = [b0] * first + [jnp.zeros_like(b0)] * (segments - first)
    return Piecewise(A=jnp.stack(A), b=jnp.stack(b), t1=t1)


def _log_positive(S: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """log S for S symmetric positive definite."""
    s, U = jnp.linalg.eigh(S)
    return (U * jnp.log(s)[None, :]) @ U.T


def _constant_bias(A: Array, mean0: Array, mean1: Array, t: float) -> Array:
    """The b with e^{At}μ₀ + ∫₀ᵗ e^{As}ds b = μ₁, for A symmetric."""
    a, U = jnp.linalg.eigh(A)
    # ∫₀ᵗ e^{as} ds = t (e^{x} − 1)/x with x = a t.
    x = a * t
    small = jnp.abs(x) < 1e-8
    weight = t * jnp.where(small, 1 + x / 2, jnp.expm1(x) / jnp.where(small, 1.0, x))
    return U @ ((U.T @ mean1 - jnp.exp(x) * (U.T @ mean0)) / weight)


def _complement(L: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what is orthogonal to the columns of L."""
    return np.linalg.svd(L, full_matrices=True)[0][:, L.shape[1] :]


def _log_rotation(R: np.ndarray) -> np.ndarray:
    """The principal skew logarithm of a rotation, from its real Schur form: 2 × 2 blocks turn by an angle each."""
    T, Q = schur(R, output="real")[:2]
    d = len(R)
    log = np.zeros_like(T)
    i, flips = 0, []
    while i < d:
        if i + 1 < d and abs(T[i + 1, i]) > 1e-12:
            angle = np.arctan2(T[i + 1, i] - T[i, i + 1], T[i, i] + T[i + 1, i + 1])
            log[i + 1, i], log[i, i + 1] = angle, -angle
            i += 2
        else:
            flips += [i] if T[i, i] < 0 else []
            i += 1
    # Eigenvalues −1 come in pairs; a pair turns by π.
    for p, q in zip(flips[::2], flips[1::2]):
        log[q, p], log[p, q] = np.pi, -np.pi
    return Q @ log @ Q.T
