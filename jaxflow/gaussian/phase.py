"""The phases of V = vI, B = bI, for any A: what becomes of the covariance depends on c = vb alone.

Σ(t) = e^{At}L₀[I − 2cL₀ᵀW(t)L₀]⁻¹L₀ᵀe^{Aᵀt},   W(t) = ∫₀ᵗ e^{Aᵀs}e^{As} ds

Blow-up before t ⇔ 2c λmax(L₀ᵀW(t)L₀) ≥ 1. As t → ∞, W solves AᵀW + WA = −I if A is Hurwitz, and grows beyond bound
otherwise. For A = aI + skew: blow-up ⇔ c > 0 and cλmax(Σ₀) > −a.
"""

import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Bool, Float, Int

from jaxflow._typing import Scalar
from jaxflow.linalg import symmetrize
from jaxflow.measures import Gaussian

PHASES = ("decays", "settles", "grows", "blows_up")
"""Σ → 0; Σ stays bounded and does not vanish; Σ → ∞ as t → ∞; Σ → ∞ in finite time."""

DOUBLINGS = 6


def _gramian(A: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The symmetric solution of AᵀW + WA = −I; positive definite if and only if A is Hurwitz (Lyapunov)."""
    d = A.shape[0]
    eye = jnp.eye(d, dtype=A.dtype)
    W = jnp.linalg.solve(jnp.kron(A.T, eye) + jnp.kron(eye, A.T), -eye.reshape(-1))
    return symmetrize(W.reshape(d, d))


def _gramian_until(A: Float[Array, "d d"], t: float) -> Float[Array, "d d"]:
    """W(t), from one matrix exponential for a short time and W(2s) = W(s) + e^{Aᵀs}W(s)e^{As}."""
    d = A.shape[0]
    eye = jnp.eye(d, dtype=A.dtype)
    block = jnp.block([[-A.T, eye], [jnp.zeros_like(A), A]])
    F = jax.scipy.linalg.expm(block * (t / 2**DOUBLINGS))
    E, W = F[d:, d:], F[d:, d:].T @ F[:d, d:]
    for _ in range(DOUBLINGS):
        E, W = E @ E, W + E.T @ W @ E
    return symmetrize(W)


def is_hurwitz(A: Float[Array, "d d"]) -> Bool[Array, ""]:
    """Whether every eigenvalue of A has a negative real part. Cost O(d⁶): meant for small d."""
    W = _gramian(A)
    finite = jnp.all(jnp.isfinite(W))
    return finite & (jnp.linalg.eigvalsh(jnp.where(finite, W, 0))[0] > 0)


def blowup_threshold(A: Float[Array, "d d"], start: Gaussian, horizon: float | None = None) -> Scalar:
    """The c* ≥ 0 such that under V = vI, B = bI the covariance blows up before `horizon` if and only if vb > c*.

    c* = 1/(2λmax(L₀ᵀWL₀)), with W = W(horizon), or without a horizon W = W(∞): then c* = 0 unless A is Hurwitz. For
    A = aI + skew, a < 0, it is |a|/λmax(Σ₀). Exact for every rank of Σ₀ at a finite horizon; without one, A must be
    Hurwitz or Σ₀ of full rank. Cost O(d⁶) without a horizon, O(d³) with one.

    Source: arXiv:2606.07600, Riccati equation (1.1).
    """
    W = _gramian(A) if horizon is None else _gramian_until(A, horizon)
    exists = is_hurwitz(A) if horizon is None else jnp.all(jnp.isfinite(W))
    spread = start.factor.T @ jnp.where(exists, W, 0) @ start.factor
    return jnp.where(exists, 1 / (2 * jnp.where(exists, jnp.linalg.eigvalsh(symmetrize(spread))[-1], 1)), 0)


def phase_of(A: Float[Array, "d d"], start: Gaussian, c: Float[Array, "*b"]) -> Int[Array, "*b"]:
    """What becomes of the covariance as t → ∞ for each c = vb: the place of its phase in PHASES.

    c > c*: blows up. 0 < c ≤ c*: decays. c < 0: attention holds back what A stretches, and Σ settles; if A stretches
    nothing it decays. c = 0: A alone decides. Σ₀ must have full rank, and where A has imaginary eigenvalues they must
    be semisimple.
    """
    rounding = jnp.finfo(A.dtype).eps ** 0.5 * (1 + jnp.max(jnp.abs(A)))
    stable = is_hurwitz(A)
    stretches = ~is_hurwitz(A - rounding * jnp.eye(A.shape[0], dtype=A.dtype))
    held = jnp.where(stretches, 1, 0)
    alone = jnp.where(stretches, 2, jnp.where(stable, 0, 1))
    return jnp.where(c > blowup_threshold(A, start), 3, jnp.where(c > 0, 0, jnp.where(c < 0, held, alone)))


def mean_converges(A: Float[Array, "d d"], v: Scalar, phase: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether the mean converges under V = vI and no bias, where the covariance does not blow up.

    The mean moves by K + V. Where Σ settles the spectrum of K reaches the imaginary axis, so that v < 0 decides: only
    V < 0 < B keeps both. Where Σ vanishes or attention is off, K → A, and A + vI must be Hurwitz.
    """
    return jnp.where(phase == 1, v < 0, (phase != 3) & is_hurwitz(A + v * jnp.eye(A.shape[0], dtype=A.dtype)))
