"""Closed forms of the moment flow that serve as oracles.

No attention (V = 0):  Σ(t) = e^{At} Σ₀ e^{Aᵀt},  μ(t) = e^{At}μ₀ + ∫₀ᵗ e^{As}b ds.
One dimension, or commuting matrices, eigenvalue by eigenvalue:  ℓ' = 2aℓ + 2cℓ², c = vb.
"""

from typing import TypeAlias

import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Float

from jaxflow._typing import Real
from jaxflow.measures import Gaussian

Reals: TypeAlias = float | int | Float[Array, "*#b"]
"""A number, or an array of them that broadcasts with the others."""


def linear(start: Gaussian, A: Float[Array, "d d"], b: Float[Array, " d"], t: Real) -> Gaussian:
    """The Gaussian at time t under ẋ = Ax + b, from one matrix exponential of size d + 1. Exact for every A."""
    d = start.dim
    generator = jnp.zeros((d + 1, d + 1), start.mean.dtype).at[:d, :d].set(A).at[:d, d].set(b)
    E = jax.scipy.linalg.expm(generator * t)
    return Gaussian(E[:d, :d] @ start.mean + E[:d, d], E[:d, :d] @ start.factor)


def _phi(a: Array, t: Reals) -> Array:
    """(e^{2at} − 1)/(2a), continuous at a = 0 and differentiable there."""
    small = jnp.abs(a * t) < 1e-5
    safe = jnp.where(small, 1.0, a)
    return jnp.where(small, t * (1 + a * t * (1 + 2 * a * t / 3)), jnp.expm1(2 * safe * t) / (2 * safe))


def scalar_variance(a: Reals, c: Reals, l0: Reals, t: Reals) -> Float[Array, "*b"]:
    """ℓ(t) = ℓ₀ e^{2at} / (1 − 2cℓ₀ (e^{2at} − 1)/(2a)), the solution of ℓ' = 2aℓ + 2cℓ², ℓ(0) = ℓ₀.

    Valid before `scalar_blowup_time`. Source: arXiv:2606.07600, Riccati equation (1.1) in d = 1.
    """
    a, l0 = jnp.asarray(a, jnp.result_type(float)), jnp.asarray(l0, jnp.result_type(float))
    return l0 * jnp.exp(2 * a * t) / (1 - 2 * c * l0 * _phi(a, t))


def scalar_blowup_time(a: Reals, c: Reals, l0: Reals) -> Float[Array, "*b"]:
    """t* = ln(1 + a/(cℓ₀))/(2a), 1/(2cℓ₀) at a = 0; inf where there is none (c ≤ 0, or a ≤ −cℓ₀).

    Golden: (a, c, ℓ₀) = (0.3, 1, 0.5) gives 0.7833393820762261.
    """
    a, r = jnp.asarray(a, jnp.result_type(float)), jnp.asarray(c * l0, jnp.result_type(float))
    exists = (r > 0) & (a > -r)
    r = jnp.where(exists, r, 1.0)
    x = jnp.where(exists, a, 0.0) / r
    small = jnp.abs(x) < 1e-5
    ratio = jnp.where(small, 1 - x / 2 + x**2 / 3, jnp.log1p(x) / jnp.where(small, 1.0, x))
    return jnp.where(exists, ratio / (2 * r), jnp.inf)
