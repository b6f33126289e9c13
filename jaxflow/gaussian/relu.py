"""How far ẋ = relu(Ax + b) leaves the Gaussian that ẋ = Ax + b moves: relu(u) = u + u^-, u^- = max(−u, 0).

W₂(true_t, Gaussian_t) ≤ ∫₀ᵗ e^{‖A‖₂(t−s)} ‖(Ax_s + b)^-‖_{L²} ds,       x_s ~ the Gaussian at time s
d/dt W₂ at t = 0       =  ‖the gradient part of (Ax + b)^-‖_{L²(N₀)}    ≤ the bound's slope ‖(Ax + b)^-‖_{L²(N₀)}
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from jaxflow._checks import check_shape
from jaxflow._typing import Real, Scalar
from jaxflow.errors import InputError
from jaxflow.gaussian.closed import linear
from jaxflow.measures import Gaussian

DEPTH = 64
"""Terms of the continued fraction for Gaussian tails: 1e-15 from z = 3 on."""

TERMS = 1_000_000
"""The most Hermite functions `relu_true_slope` sums over."""


def negative_part(m: Float[Array, "*b"], s: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """E[(u^-)²] = (m² + s²)Φ(−m/s) − m s φ(m/s) for u ~ N(m, s²), s ≥ 0.

    For z = m/s > 3 the two terms cancel. There s² ∫_z^∞ (t − z)² φ dt = 2s² φ(z) r₀r₁r₂ with the ratios of successive
    repeated integrals of φ, r_n = 1/(z + (n+1) r_{n+1}): never negative, relative error 3e-14 up to z = 30.
    At s = 0 it is (m^-)².
    """
    s_safe = jnp.where(s > 0, s, 1)
    z = m / s_safe
    near = jnp.minimum(z, 3)
    direct = (near * near + 1) * norm.cdf(-near) - near * norm.pdf(near)
    far = jnp.maximum(z, 3)

    def descend(i: Array, r: Array) -> Array:
        return 1 / (far + (DEPTH - i) * r)

    # After DEPTH − 3 rounds r is r₃.
    r2 = 1 / (far + 3 * jax.lax.fori_loop(0, DEPTH - 3, descend, jnp.zeros_like(far)))
    r1 = 1 / (far + 2 * r2)
    tail = 2 * norm.pdf(far) * r2 * r1 / (far + r1)
    return jnp.where(s > 0, s_safe**2 * jnp.where(z > 3, tail, direct), jnp.minimum(m, 0) ** 2)


def _norm(x: Gaussian, A: Float[Array, "d d"], b: Float[Array, " d"]) -> Scalar:
    """‖(Ax + b)^-‖_{L²(N)}."""
    AL = A @ x.factor
    variance = jnp.sum(AL * AL, -1)
    s = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0)
    return jnp.sqrt(jnp.sum(negative_part(A @ x.mean + b, s)))


def relu_bound_slope(start: Gaussian, A: Float[Array, "d d"], b: Float[Array, " d"]) -> Scalar:
    """‖(Ax + b)^-‖_{L²(N₀)} = (Σ_i E[((Ax + b)_i^-)²])^½, the slope of `relu_bound` at t = 0. Any rank; O(d² r)."""
    _check(start, A, b)
    return _norm(start, A, b)


def relu_bound(
    start: Gaussian, A: Float[Array, "d d"], b: Float[Array, " d"], t: Real, *, nodes: int = 32
) -> Float[Array, ""]:
    """∫₀ᵗ e^{L(t−s)} ‖(Ax_s + b)^-‖_{L²} ds, at least W₂ between relu tokens and the Gaussian of ẋ = Ax + b at time t.

    L = ‖A‖₂ is the Lipschitz constant of x ↦ relu(Ax + b): move both from the same x₀; the gap e obeys
    |ė| ≤ L|e| + |(Ax_s + b)^-| in L², and Grönwall's inequality gives the integral. The Gaussian is the closed form
    `linear`. Any rank.

    Args:
        start: the Gaussian at time 0.
        A, b: feed-forward, constant in time, without attention.
        t: ≥ 0.
        nodes: of Gauss–Legendre quadrature in s; the integrand is smooth, and 32 leave about 1e-12 for ‖A‖t ≤ 3.

    Cost: `nodes` matrix exponentials of size d + 1.

    Source: derived in tests/README.md; the question is that of arXiv:2606.07600.
    """
    _check(start, A, b)
    x, w = np.polynomial.legendre.leggauss(nodes)
    s = (1 + jnp.asarray(x, A.dtype)) * t / 2
    gap = jax.vmap(lambda s: _norm(linear(start, A, b, s), A, b))(s)
    L = jnp.linalg.norm(A, 2)
    return jnp.sum(jnp.asarray(w, A.dtype) * jnp.exp(L * (t - s)) * gap) * t / 2


def relu_true_slope(
    start: Gaussian, A: Float[Array, "d d"], b: Float[Array, " d"], *, degree: int | None = None
) -> Scalar:
    """The derivative of W₂(true_t, Gaussian_t) at t = 0: the norm of the gradient part ∇φ of w(x) = (Ax + b)^-,

        slope² = ‖w‖² − min_φ ‖w − ∇φ‖² = Σ_α r_α² / λ_α,   r_α = ⟨w, ∇h_α⟩,  λ_α = Σ_i α_i/σ_i,

    in L²(N₀), with Hermite functions h_α along the principal axes of Σ₀ = U diag(σ) Uᵀ, in which the weighted Poisson
    equation is diagonal. Each component of w is a function of one Gaussian variable u = m + s⟨e, z⟩, so that its
    coefficients of degree n are

        c_n e^α √(n!/α!),   c_0 = s(φ(κ) − κΦ(−κ)),  c_1 = −sΦ(−κ),  c_n = s φ(κ) He_{n−2}(−κ)/√n!,   κ = m/s.

    Of the degrees above `degree` w_k keeps the fraction A_kk²/|A_k|², that of plane waves along the row A_k, which is
    exact in the limit: the error falls like degree^{−5/2} (measured in d = 2: 3e-6 at degree 40, 1e-6 at 60).

    Equal to `relu_bound_slope` in d = 1 and for diagonal A with diagonal Σ₀ (then w is a gradient), smaller otherwise.

    Args:
        start: of full rank.
        A, b: feed-forward at time 0.
        degree: of the expansion; default 60 in d ≤ 2, 40 in d = 3, 20 in d = 4, else 10.

    Raises:
        InputError: a start of deficient rank, or more than a million Hermite functions.

    Cost: O(binomial(degree + d + 1, d) d²). Not meant to be differentiated in the start (eigenvectors).

    Source: Ambrosio, Gigli, Savaré, Gradient Flows (2008), sections 8.4 and 8.5; derived in tests/README.md.
    """
    _check(start, A, b)
    d = start.dim
    if start.rank < d:
        raise InputError("must have full rank", where="start", got=f"rank {start.rank}", expected=f"rank {d}")
    N = {1: 60, 2: 60, 3: 40, 4: 20}.get(d, 10) if degree is None else degree
    if N < 1 or math.comb(N + 1 + d, d) > TERMS:
        raise InputError(
            "gives an unusable number of Hermite functions",
            where="degree",
            got=f"degree {N} in d = {d}: {math.comb(N + 1 + d, d) if N > 0 else 0}",
            expected=f"at least 1, and at most {TERMS} functions",
        )
    sigma, U = jnp.linalg.eigh(start.covariance)
    rows = A @ U * jnp.sqrt(sigma)[None]
    s = jnp.sqrt(jnp.sum(rows * rows, -1))
    s_safe = jnp.where(s > 0, s, 1)
    e = rows / s_safe[:, None]
    m = A @ start.mean + b
    c = _coefficients(m, s, N)

    alpha, root = _indices(d, N + 1)
    powers = jnp.concatenate([jnp.ones_like(e)[None], jnp.cumprod(jnp.broadcast_to(e, (N + 1, d, d)), axis=0)])
    at = powers[alpha, :, jnp.arange(d)[None]]  # (α, i, k): e_k^α_i
    below = powers[np.maximum(alpha - 1, 0), :, jnp.arange(d)[None]]
    derivative = 0
    for i in range(d):
        others = jnp.prod(at[:, [j for j in range(d) if j != i]], axis=1)
        derivative = derivative + alpha[:, i, None] * below[:, i] * others * (U[:, i] / jnp.sqrt(sigma[i]))[None]
    r = root * jnp.sum(c[:, alpha.sum(1) - 1].T * derivative, -1)
    captured = jnp.sum(r * r / jnp.sum(alpha / sigma[None], -1))

    left = negative_part(m, s) - jnp.sum(c * c, -1)
    size = jnp.sum(A * A, -1)
    share = jnp.where(size > 0, jnp.diagonal(A) ** 2 / jnp.where(size > 0, size, 1), 0)
    return jnp.sqrt(captured + jnp.sum(share * jnp.maximum(left, 0)))


def _coefficients(m: Float[Array, " k"], s: Float[Array, " k"], N: int) -> Float[Array, "k n"]:
    """c_0 … c_N of (m + sζ)^- in normalised Hermite polynomials of ζ ~ N(0, 1). At s = 0 only c_0 = m^-."""
    kappa = m / jnp.where(s > 0, s, 1)
    c = [jnp.where(s > 0, s * (norm.pdf(kappa) - kappa * norm.cdf(-kappa)), jnp.maximum(-m, 0)), -s * norm.cdf(-kappa)]
    before, h = jnp.zeros_like(kappa), jnp.ones_like(kappa)
    for n in range(2, N + 1):
        c.append(s * h * norm.pdf(kappa) / math.sqrt(n * (n - 1)))
        j = n - 2
        before, h = h, (-kappa * h - math.sqrt(j) * before) / math.sqrt(j + 1)
    return jnp.stack(c, -1)


def _indices(d: int, N: int) -> tuple[np.ndarray, np.ndarray]:
    """All multi-indices α of degree 1 to N, (a, d), and √((|α| − 1)!/α!)."""
    alpha = np.zeros((1, 0), int)
    for _ in range(d):
        room = N - alpha.sum(1)
        alpha = np.concatenate(
            [np.insert(np.repeat(a[None], r + 1, 0), a.size, np.arange(r + 1), 1) for a, r in zip(alpha, room)]
        )
    alpha = alpha[alpha.sum(1) > 0]
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, N + 1)))])
    return alpha, np.exp(0.5 * (log_factorial[alpha.sum(1) - 1] - log_factorial[alpha].sum(1)))


def _check(start: Gaussian, A: Array, b: Array) -> None:
    check_shape(start.mean, ("d",), "start.mean")
    check_shape(A, (start.dim, start.dim), "A")
    check_shape(b, (start.dim,), "b")
