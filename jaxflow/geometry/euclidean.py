"""Euclidean space R^d, where every operation is the obvious one."""

from typing import final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import PRNGKey
from jaxflow.geometry.base import AbstractGeometry
from jaxflow.linalg import safe_norm


@final
class Euclidean(AbstractGeometry):
    """R^d with its usual metric."""

    def project(self, x: Float[Array, "*b d"], u: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        return u

    def retract(self, x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        return x

    def exp(self, x: Float[Array, "*b d"], u: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        return x + u

    def log(self, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        return y - x

    def distance(self, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        return safe_norm(y - x)

    def squared_distance(self, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        return jnp.sum((y - x) ** 2, axis=-1)

    def transport(
        self, x: Float[Array, "*b d"], y: Float[Array, "*b d"], u: Float[Array, "*b d"]
    ) -> Float[Array, "*b d"]:
        return u

    def sample(self, key: PRNGKey, n: int, d: int) -> Float[Array, "n d"]:
        return jax.random.normal(key, (n, d))

    def violation(self, x: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        return 0 * x[..., 0]
