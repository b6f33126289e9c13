"""Square roots, norms and the Bures distance, with derivatives that stay finite.

Eigenvectors are never differentiated: where eigenvalues meet, their derivative is infinite although that
of the square root is not. The square root's own derivative solves X dX + dX X = dA (a Lyapunov equation).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar

SMALL = 8
"""The largest matrices that are multiplied by sums."""


def symmetrize(X: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    """(X + Xᵀ)/2."""
    return (X + jnp.swapaxes(X, -1, -2)) / 2


def product(X: Float[Array, "*a i j"], Y: Float[Array, "*b j k"]) -> Float[Array, "*c i k"]:
    """XY, for matrices whose product costs less than a call to a library: below size 9 it is a sum that XLA fuses with
    what comes before and after (d = 4 on a CPU: a Hessian product through a moment flow five times as fast)."""
    if max(*X.shape[-2:], Y.shape[-1]) > SMALL:
        return X @ Y
    return jnp.sum(X[..., :, :, None] * Y[..., None, :, :], axis=-2)


def safe_norm(x: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """|x| along the last axis, with derivative 0 (not NaN) at x = 0."""
    squared = jnp.sum(x * x, axis=-1)
    zero = squared == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, squared)))


def _tiny(values: Float[Array, "*b r"]) -> Float[Array, "*b"]:
    """Below this a spectral value counts as zero: rounding error of the largest one."""
    return values.shape[-1] * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values), axis=-1)


def _inverse_or_zero(x: Array, floor: Array) -> Array:
    """1/x where x > floor, else 0."""
    kept = x > floor
    return jnp.where(kept, 1 / jnp.where(kept, x, 1), 0)


def solve_lyapunov(X: Float[Array, "d d"], C: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The Y with X Y + Y X = C, for X symmetric positive semidefinite.

    Where X has a kernel the part of C that lives on the kernel alone has no preimage; it is dropped
    (pseudo-inverse), which is exact for variations that keep the range of X. Differentiable to every order,
    by solving the same equation again. Cost O(d³).
    """
    s, U = jnp.linalg.eigh(symmetrize(jax.lax.stop_gradient(X)))
    weights = _inverse_or_zero(s[:, None] + s[None, :], 2 * _tiny(s))

    def solve(_, C):
        return U @ ((U.T @ C @ U) * weights) @ U.T

    return jax.lax.custom_linear_solve(lambda Y: X @ Y + Y @ X, C, solve, symmetric=True)


def solve_stable_lyapunov(X: Float[Array, "d d"], C: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The Y with X Y + Y Xᵀ = C, for X Hurwitz (every eigenvalue with Re < 0).

    By the squared Smith iteration: with q > 0 and the Cayley transform E = (X − qI)^{-1}(X + qI), |eig E| < 1, the sum
    Y = Σ_k E^k F Eᵀ^k doubles its number of terms at every step. Two rounds of refinement follow. Differentiable to
    every order, by solving the same equation again. Cost O(d³); resolves decay rates up to about 1e8 apart.
    Source: R. A. Smith, SIAM J. Appl. Math. 16 (1968) 198.
    """
    d = X.shape[0]
    eye = jnp.eye(d, dtype=X.dtype)

    def smith(X: Array, C: Array) -> Array:
        # The geometric mean of the decay rates, |det X|^{1/d}, treats fast and slow ones alike.
        q = jnp.exp(jnp.linalg.slogdet(X)[1] / d)
        R = jnp.linalg.inv(X - q * eye)
        E = R @ (X + q * eye)

        def double(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            Y, E = carry
            return (Y + E @ Y @ E.T, E @ E), None

        return jax.lax.scan(double, (-2 * q * (R @ C @ R.T), E), None, length=30)[0][0]

    def solve_with(X: Array, C: Array) -> Array:
        Y = smith(X, C)
        for _ in range(2):
            Y = Y + smith(X, C - X @ Y - Y @ X.T)
        return Y

    fixed = jax.lax.stop_gradient(X)
    return jax.lax.custom_linear_solve(
        lambda Y: X @ Y + Y @ X.T, C, lambda _, C: solve_with(fixed, C), lambda _, C: solve_with(fixed.T, C)
    )


def matrix_sign(A: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """sign(A): the function that is 1 on the invariant subspace of Re λ > 0 and −1 on that of Re λ < 0.

    Newton's iteration X ← (cX + (cX)^{-1})/2 with c = |det X|^{-1/d} until it has settled. Undefined, and not to be
    trusted, with an eigenvalue on the imaginary axis. Its derivative is not offered: use it for projections whose
    result is then polished. Cost O(d³) a step, about ten steps.
    Source: N. J. Higham, Functions of Matrices (SIAM 2008), ch. 5.
    """
    A = jax.lax.stop_gradient(A)

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        X, gap, k = carry
        # Scaling speeds up the first steps and spoils the last ones.
        c = jnp.where(gap > 1e-2, jnp.exp(-jnp.linalg.slogdet(X)[1] / X.shape[0]), 1.0)
        new = (c * X + jnp.linalg.inv(X) / c) / 2
        return new, jnp.linalg.norm(new - X) / jnp.linalg.norm(new), k + 1

    def going(carry: tuple[Array, Array, Array]) -> Array:
        return (carry[1] > 1e-14) & (carry[2] < 100)

    start = (A, jnp.asarray(jnp.inf, A.dtype), jnp.asarray(0))
    return jax.lax.while_loop(going, step, start)[0]


@jax.custom_jvp
def sqrtm(A: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """A^½ for A symmetric positive semidefinite; negative eigenvalues (rounding) count as zero.

    Smooth to every order where A > 0, equal eigenvalues included. Cost O(d³).
    """
    a, U = jnp.linalg.eigh(symmetrize(A))
    return (U * jnp.sqrt(jnp.maximum(a, 0))[None]) @ U.T


@sqrtm.defjvp
def _(primals, tangents):
    X = sqrtm(primals[0])
    return X, solve_lyapunov(X, symmetrize(tangents[0]))


@jax.custom_jvp
def polar(M: Float[Array, "r r"]) -> Float[Array, "r r"]:
    """The orthogonal R = U Vᵀ of M = U S Vᵀ: it maximises tr(RᵀM). Unique and smooth where M is invertible."""
    U, _, Vt = jnp.linalg.svd(M)
    return U @ Vt


@polar.defjvp
def _(primals, tangents):
    # M = R P with P symmetric; dR = R Ω with Ω skew and P Ω + Ω P = RᵀdM − dMᵀR.
    (M,), (dM,) = primals, tangents
    R = polar(M)
    return R, R @ solve_lyapunov(symmetrize(R.T @ M), R.T @ dM - dM.T @ R)


def bures_gap(L0: Float[Array, "d r0"], L1: Float[Array, "d r1"]) -> Float[Array, "d r"]:
    """L₀ − L₁R with the orthogonal R that makes it smallest, so that |L₀ − L₁R|² = W₂²(N(0,Σ₀), N(0,Σ₁)).

    Equal to |L₀|² + |L₁|² − 2‖L₀ᵀL₁‖_* but free of its cancellation: W₂ itself is accurate to rounding, down to
    zero. Ranks may differ (r = max); the narrower factor is padded with zero columns. Cost O(d r² + r³).
    Source: Bhatia, Jain, Lim, Expo. Math. 37 (2019), Theorem 1.
    """
    L0, L1 = _same_rank(L0, L1)
    return L0 - L1 @ polar(L1.T @ L0)


def _same_rank(*factors: Float[Array, "d _"]) -> list[Float[Array, "d r"]]:
    r = max(L.shape[1] for L in factors)
    return [jnp.pad(L, ((0, 0), (0, r - L.shape[1]))) for L in factors]


CANCELS = 1e-3
"""Below this share of |L₀|² + |L₁|² what is left of it without 2‖L₀ᵀL₁‖_* has lost three digits."""


@jax.custom_jvp
def bures_squared(L0: Float[Array, "d r0"], L1: Float[Array, "d r1"]) -> Scalar:
    """W₂²(N(0, L₀L₀ᵀ), N(0, L₁L₁ᵀ)) = |L₀|² + |L₁|² − 2‖L₀ᵀL₁‖_*: to 1e-12 of itself, and its root to rounding.

    By singular values alone, which cost a third of what singular vectors cost; where that would cancel, and under
    differentiation, it is |L₀ − L₁R|² of `bures_gap`. Cost O(d r² + r³).
    """
    scale = jnp.sum(L0 * L0) + jnp.sum(L1 * L1)
    square = scale - 2 * jnp.sum(jnp.linalg.svd(L0.T @ L1, compute_uv=False))

    def careful(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        # What does not depend on the carry would be moved out of the loop.
        gap = bures_gap(jnp.where(carry[1], L0, 0), L1)
        return jnp.sum(gap * gap), jnp.asarray(False)

    # Not a condition: under vmap both its branches are computed, while a loop that no one enters costs nothing.
    return jax.lax.while_loop(lambda carry: carry[1], careful, (square, square < CANCELS * scale))[0]


@bures_squared.defjvp
def _(primals, tangents):
    # R is the best one, so that its own variation does not count.
    L0, L1 = _same_rank(*primals)
    dL0, dL1 = _same_rank(*tangents)
    R = polar(L1.T @ L0)
    gap = L0 - L1 @ R
    return jnp.sum(gap * gap), 2 * jnp.sum(gap * (dL0 - dL1 @ R))


def factor_of(Sigma: Float[Array, "d d"], rank: int) -> Float[Array, "d r"]:
    """L (d × rank) with L Lᵀ = Σ: Cholesky at full rank, else the `rank` largest eigenpairs."""
    if rank == Sigma.shape[0]:
        return jnp.linalg.cholesky(symmetrize(Sigma))
    s, U = jnp.linalg.eigh(symmetrize(Sigma))
    return U[:, -rank:] * jnp.sqrt(jnp.maximum(s[-rank:], 0))[None]
