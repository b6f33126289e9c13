"""Tied heads that follow an Ornstein–Uhlenbeck process: dD = (D̄ − D)dt + σ dW_sym.

dW_sym = √dt (Z + Zᵀ)/2 with Z iid N(0,1). The transition over any time h is Gaussian and exact:

    D(t+h) = D̄ + e^{−h}(D(t) − D̄) + √(σ²(1 − e^{−2h})/2) (Z + Zᵀ)/2
"""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_positive, check_same_dtype, check_shape, check_symmetric
from jaxflow._typing import PRNGKey, Real
from jaxflow.weights.layer import Layer, make_layer
from jaxflow.weights.random import AbstractRandom, symmetric_normal


def random_heads(key: PRNGKey, *, heads: int, dim: int, dtype: Any = None) -> Float[Array, "h d d"]:
    """D(0) = Z + Zᵀ, Z iid N(0,1): the initial heads of arXiv:2605.18870, §5."""
    return 2 * symmetric_normal(key, (heads, dim, dim), dtype or jnp.result_type(float))


@final
class OrnsteinUhlenbeck(AbstractRandom):
    """Heads pulled towards `mean` and shaken by symmetric noise; sampled exactly on any time grid.

    Args:
        initial: D(0), (h, d, d), symmetric.
        mean: D̄, (d, d) or (h, d, d).
        noise_var: σ² (2 in the paper). The stationary law has variance σ²/2 on the diagonal, σ²/4 off it.
        A, b, mass: constant feed-forward and head masses, as for `Constant`.

    Source: arXiv:2605.18870, §5.
    """

    initial: Layer
    mean: Float[Array, "h d d"]
    noise_var: Float[Array, ""]
    edges: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self, *, initial: Any, mean: Any, noise_var: Any = 2.0, A: Any = None, b: Any = None, mass: Any = None
    ):
        self.initial = make_layer(D=initial, A=A, b=b, mass=mass)
        dtype, (h, d) = self.initial.dtype, (self.initial.heads, self.initial.dim)
        mean = as_float(mean, "mean", dtype)
        check_shape(mean, (d, d) if mean.ndim == 2 else (h, d, d), "mean")
        check_symmetric(mean, "mean", "the heads stay symmetric only around a symmetric mean")
        self.mean = jnp.broadcast_to(mean, (h, d, d))
        check_positive(noise_var, "noise_var", "use `Constant` or `Function` for heads without noise")
        self.noise_var = jnp.asarray(noise_var, dtype)
        check_same_dtype({"initial": self.initial, "mean": self.mean})
        self.edges = ()

    def drift(self, t: Real, state: Any = None) -> Float[Array, "h d d"]:
        """D̄ − D."""
        return self.mean - (self.begin(None) if state is None else state)

    def amplitude(self, t: Real, state: Any = None) -> Float[Array, ""]:
        """σ."""
        return jnp.sqrt(self.noise_var)

    def advance(
        self, state: Float[Array, "h d d"], h: Real, key: PRNGKey | None, t: Real = 0.0
    ) -> Float[Array, "h d d"]:
        """Drawn from the exact transition."""
        assert key is not None
        S = symmetric_normal(key, state.shape, state.dtype)
        spread = jnp.sqrt(-self.noise_var / 2 * jnp.expm1(-2 * jnp.asarray(h, state.dtype)))
        return self.mean + jnp.exp(-jnp.asarray(h, state.dtype)) * (state - self.mean) + spread * S
