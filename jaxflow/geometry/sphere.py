"""The unit sphere S^{d−1}: P_x u = u − ⟨u,x⟩ x/|x|², retraction x/|x|, geodesics are great circles."""

import math
from typing import final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import PRNGKey
from jaxflow.geometry.base import AbstractGeometry
from jaxflow.linalg import safe_norm


def _dot(x: Array, y: Array) -> Array:
    return jnp.sum(x * y, axis=-1, keepdims=True)


def _sinc(r: Array) -> Array:
    """sin(r)/r, smooth at 0."""
    return jnp.sinc(r / jnp.pi)


# 2 c^k/(k² binom(2k, k)), k = 1..18: the tail is below rounding for c ≤ ½.
_ANGLE = [2 / (k * k * math.comb(2 * k, k)) for k in range(1, 19)]


def _squared_angle(c: Array) -> Array:
    """4 arcsin²(√c/2) for c ≤ ½, by Horner's rule."""
    total = jnp.zeros_like(c)
    for a in reversed(_ANGLE):
        total = c * (a + total)
    return total


@final
class Sphere(AbstractGeometry):
    """The unit sphere in R^d with the angle as distance. Tokens after layer normalisation live here.

    The projector divides by |x|², so that it is right for points that have drifted off the sphere: without the
    division the repulsive flow leaves the sphere and blows up by t ≈ 20, in float64 too.
    """

    def project(self, x: Float[Array, "*b d"], u: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        return u - _dot(u, x) / _dot(x, x) * x

    def retract(self, x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        return x / jnp.sqrt(_dot(x, x))

    def exp(self, x: Float[Array, "*b d"], u: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        """cos|u| x + sin|u| u/|u|."""
        r = safe_norm(u)[..., None]
        return jnp.cos(r) * x + _sinc(r) * u

    def log(self, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        """θ/sin θ · (y − ⟨x,y⟩x), θ the angle. Zero at y = x, and at y = −x, where no geodesic is preferred."""
        u = self.project(x, y)
        r = safe_norm(u)[..., None]
        theta = jnp.arctan2(r, _dot(x, y))
        return theta * u / jnp.where(r == 0, 1, r)

    def distance(self, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        """The angle, as 2 arctan(|x−y|/|x+y|): accurate for near and for antipodal points, where arccos is not."""
        return 2 * jnp.arctan2(safe_norm(x - y), safe_norm(x + y))

    def squared_distance(self, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        """With the chord c = |x−y|²: θ² = 4 arcsin²(√c/2) = c + c²/12 + c³/90 + …, a power series in c. Not smooth
        between antipodal points."""
        c = jnp.sum((x - y) ** 2, axis=-1)
        near = c < 0.5
        series = _squared_angle(jnp.where(near, c, 0.0))
        return jnp.where(near, series, self.distance(x, jnp.where(near[..., None], -x, y)) ** 2)

    def transport(
        self, x: Float[Array, "*b d"], y: Float[Array, "*b d"], u: Float[Array, "*b d"]
    ) -> Float[Array, "*b d"]:
        """u − ⟨u,y⟩/(1+⟨x,y⟩)(x+y); not defined between antipodal points."""
        return u - _dot(u, y) / (1 + _dot(x, y)) * (x + y)

    def sample(self, key: PRNGKey, n: int, d: int) -> Float[Array, "n d"]:
        return self.retract(jax.random.normal(key, (n, d)))

    def violation(self, x: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        return jnp.abs(safe_norm(x) - 1)
