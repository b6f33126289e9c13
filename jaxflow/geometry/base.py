"""What a space must offer so that tokens can flow on it."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from jaxflow._typing import PRNGKey


class AbstractGeometry(eqx.Module):
    """A submanifold of R^d. Points are rows; every method works on any number of leading axes."""

    @abc.abstractmethod
    def project(self, x: Float[Array, "*b d"], u: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        """P_x u: the part of u tangent at x."""

    @abc.abstractmethod
    def retract(self, x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        """The point of the space nearest to x."""

    @abc.abstractmethod
    def exp(self, x: Float[Array, "*b d"], u: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        """The end of the geodesic that leaves x with velocity u, after unit time."""

    @abc.abstractmethod
    def log(self, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        """The velocity at x whose unit-time geodesic ends in y: exp(x, log(x, y)) = y."""

    @abc.abstractmethod
    def distance(self, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        """Geodesic distance."""

    @abc.abstractmethod
    def squared_distance(self, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        """Its square, smooth where points coincide: with the right second derivative there, which the square of
        `distance` does not have."""

    @abc.abstractmethod
    def transport(
        self, x: Float[Array, "*b d"], y: Float[Array, "*b d"], u: Float[Array, "*b d"]
    ) -> Float[Array, "*b d"]:
        """u, tangent at x, carried to y along the geodesic without turning."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey, n: int, d: int) -> Float[Array, "n d"]:
        """n independent reference points in R^d: uniform on the sphere, standard normal in R^d."""

    @abc.abstractmethod
    def violation(self, x: Float[Array, "*b d"]) -> Float[Array, "*b"]:
        """How far x is from the space: 0 on it."""
