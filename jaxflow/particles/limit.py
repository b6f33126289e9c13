"""The kernel that infinitely many independent heads add up to: k(⟨x,y⟩, t) = E e^{⟨x, D_t y⟩}, x and y unit vectors.

For heads of law D = cI + √τ (Z + Zᵀ)/2, Z iid N(0,1), the number ⟨x,Dy⟩ is normal of mean cs and variance τ(1 + s²)/2,
s = ⟨x,y⟩, so that

    k = exp(cs + τ(1 + s²)/4)

Ornstein–Uhlenbeck heads with D̄ = I have c = 1 − e^{−t}, τ = τ₀e^{−2t} + (σ²/2)(1 − e^{−2t}); in the long run c = 1,
τ = σ²/2.
"""

import abc
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from scipy.special import roots_jacobi

from jaxflow._checks import as_float, check_positive, check_shape
from jaxflow._typing import Real, Scalar
from jaxflow.errors import InputError


class AbstractLimit(eqx.Module):
    """A kernel k(s, t) of the cosine s = ⟨x,y⟩ and of depth t: a law of heads that no rotation changes."""

    @abc.abstractmethod
    def log_kernel(self, s: Float[Array, "n m"], t: Real) -> Float[Array, "n m"]:
        """log k(s, t), entry by entry, differentiable in both."""


@final
class OrnsteinUhlenbeckLimit(AbstractLimit):
    """log k = (1 − e^{−t})s + τ(1 + s²)/4, τ = τ₀e^{−2t} + (σ²/2)(1 − e^{−2t}).

    What `weights.OrnsteinUhlenbeck` with mean I and `random_heads` averages to as the number of heads grows.

    Args:
        noise_var: σ² > 0 (2 in the paper). Its precision is that of the kernel: jnp.float32(2.0) for float32 tokens.
        initial_var: τ₀ > 0, the variance of the diagonal of D(0): 4 for D(0) = Z + Zᵀ.
        stationary: heads that have reached equilibrium, log k = s + σ²(1 + s²)/8 at all times.

    Source: arXiv:2605.18870, §5.
    """

    noise_var: Float[Array, ""]
    initial_var: Float[Array, ""]
    stationary: bool = eqx.field(static=True)

    def __init__(self, *, noise_var: Any = 2.0, initial_var: Any = 4.0, stationary: bool = False) -> None:
        for name, value in (("noise_var", noise_var), ("initial_var", initial_var)):
            check_shape(jnp.asarray(value), (), name)
            check_positive(value, name)
        self.noise_var = as_float(noise_var, "noise_var")
        self.initial_var = jnp.asarray(initial_var, self.noise_var.dtype)
        self.stationary = stationary

    def log_kernel(self, s: Float[Array, "n m"], t: Real) -> Float[Array, "n m"]:
        if self.stationary:
            return s + self.noise_var / 8 * (1 + s * s)
        gone, left = -jnp.expm1(-t), -jnp.expm1(-2 * t)
        tau = self.initial_var * (1 - left) + self.noise_var / 2 * left
        return gone * s + tau / 4 * (1 + s * s)


def uniform_energy(kernel: AbstractLimit, *, dim: int, t: Real) -> Scalar:
    """E of the uniform measure on S^{dim−1} under infinitely many heads at time t:

        E = ½ ∫₋₁¹ k(s, t) (1 − s²)^{(d−3)/2} ds / ∫₋₁¹ (1 − s²)^{(d−3)/2} ds,      on S² ¼ ∫₋₁¹ k ds.

    No measure has less if k is positive definite, that is, if every Gegenbauer coefficient of k(·, t) is ≥ 0: true of
    `OrnsteinUhlenbeckLimit`, whose power series in s has no negative term. 64 Gauss–Jacobi nodes, exact to rounding for
    kernels that are smooth at that scale.

    Args:
        dim: d ≥ 2.

    Raises:
        InputError: dim < 2.

    Source: arXiv:2605.18870, §5 (S², 0.8309227508 for stationary heads with σ² = 2).
    """
    if dim < 2:
        raise InputError("the sphere needs at least two dimensions", where="dim", got=dim, expected="at least 2")
    s, w = roots_jacobi(64, (dim - 3) / 2, (dim - 3) / 2)
    dtype = jnp.result_type(float)
    k = jnp.exp(kernel.log_kernel(jnp.asarray(s, dtype)[None], t))[0]
    return 0.5 * jnp.sum(jnp.asarray(w / w.sum(), dtype) * k)
