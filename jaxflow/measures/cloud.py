"""A cloud of tokens: the measure μ = Σ_j w_j δ_{x_j}."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_same_dtype, check_shape, is_concrete
from jaxflow.errors import InputError


@final
class Cloud(eqx.Module):
    """n weighted points in R^d (on the sphere: unit vectors).

    Attributes:
        points: x, (n, d).
        log_weights: log w, (n,), with Σ w = 1; None means equal weights 1/n.
    """

    points: Float[Array, "*t n d"]
    log_weights: Float[Array, "*t n"] | None = None

    def __check_init__(self) -> None:
        if self.log_weights is not None:
            check_shape(self.log_weights, self.points.shape[:-1], "log_weights")
            check_same_dtype({"points": self.points, "log_weights": self.log_weights})

    @classmethod
    def from_weights(cls, points: Float[Array, "n d"], weights: Float[Array, "n"]) -> "Cloud":
        """A cloud from positive weights, which are divided by their sum.

        Raises:
            InputError: a weight is not positive.
        """
        points = as_float(points, "points")
        weights = as_float(weights, "weights", points.dtype)
        if is_concrete(weights) and not bool((weights > 0).all()):
            raise InputError("must be positive", where="weights", got=float(weights.min()), fix="leave such points out")
        return cls(points, jnp.log(weights / weights.sum()))

    @property
    def log_w(self) -> Float[Array, "*t n"]:
        """log w_j, also for equal weights."""
        if self.log_weights is not None:
            return self.log_weights
        n = self.points.shape[-2]
        return jnp.full(self.points.shape[:-1], -jnp.log(n), self.points.dtype)

    @property
    def weights(self) -> Float[Array, "*t n"]:
        """w_j, summing to 1."""
        return jnp.exp(self.log_w)

    @property
    def mean(self) -> Float[Array, "*t d"]:
        """Σ_j w_j x_j."""
        return jnp.einsum("...n,...nd->...d", self.weights, self.points)

    @property
    def covariance(self) -> Float[Array, "*t d d"]:
        """Σ_j w_j (x_j − mean)(x_j − mean)ᵀ (divides by n, not n − 1: the covariance of the measure itself)."""
        x = self.points - self.mean[..., None, :]
        return jnp.einsum("...n,...ni,...nj->...ij", self.weights, x, x)
