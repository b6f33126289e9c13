"""A density on S¹ or S²: ρ = Σ_k c_k Y_k in the orthonormal functions of `waves`, up to a degree N.

∫ρ dx = c_0 √|S| = 1, with dx the length of the circle (2π in all) or the area of the sphere (4π).
"""

import math
from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_positive, is_concrete
from jaxflow._typing import PRNGKey, Real, Scalar
from jaxflow.errors import InputError
from jaxflow.geometry import Sphere
from jaxflow.geometry.check import check_on
from jaxflow.meanfield.evaluate import evaluate, moments
from jaxflow.meanfield.sampling import draw
from jaxflow.meanfield.waves import area, degree_of, degrees, laplacian, size, waves
from jaxflow.measures import Cloud
from jaxflow.measures.single import check_single_cloud

MASS = 1e-6
"""How far from 1 the integral of a given function may be."""

NEGATIVE = 1e-3
"""How far below 0 a density may dip, in units of its largest value."""

RESOLVED = 4.5
"""Bandwidth times degree from which on a smoothed cloud has no negative values to speak of: the last degree is damped
by e^{−4.5²/2} = 4e-5."""


@final
class Density(eqx.Module):
    """A density with respect to length on S¹ or area on S², of mass 1.

    Attributes:
        coefficients: c_k, (K,): K = 2N + 1 on S¹ (1, cos φ, sin φ, cos 2φ, …), (N + 1)² on S² (by l, then m = −l … l).
        dim: d, 2 for S¹ and 3 for S².
    """

    coefficients: Float[Array, "*t K"]
    dim: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.dim not in (2, 3):
            raise InputError("must be 2 for S¹ or 3 for S²", where="dim", got=self.dim)
        if degree_of(self.dim, self.coefficients.shape[-1]) is None:
            wanted = "2N + 1" if self.dim == 2 else "(N + 1)²"
            raise InputError(
                "are not those of a degree",
                where="coefficients",
                got=self.coefficients.shape[-1],
                expected=f"{wanted} of them",
                fix="Density.from_function, from_cloud or uniform make a density",
            )

    @classmethod
    def uniform(cls, *, dim: int, degree: int, dtype: Any = None) -> "Density":
        """1/|S|."""
        c = jnp.zeros(size(dim, degree), dtype or jnp.result_type(float))
        return cls(c.at[0].set(1 / math.sqrt(area(dim))), dim)

    @classmethod
    def from_function(
        cls,
        function: Callable[[Float[Array, "g d"]], Float[Array, " g"]],
        *,
        dim: int,
        degree: int,
        normalize: bool = False,
    ) -> "Density":
        """The projection of a function ≥ 0 with ∫ = 1 onto degrees ≤ N.

        Args:
            function: of many points at once, unit vectors (g, d), to (g,).
            normalize: divide by the integral, whatever it is. If not, it must be 1 to 1e-6.

        Raises:
            InputError: another shape, NaN, negative values, another mass; or a projection that dips below 0 by more
                than 1e-3 of its largest value, as that of a function does which degree N does not resolve.

        Cost: one call with 2(2N+2)² points on S². The error falls faster than any power of N if the function is smooth.
        """
        check_degree(degree)
        W = waves(dim, degree, 2 * degree + 2)
        F = _called(function, W.points)
        mass = float(W.integral(F)) if is_concrete(F) else None
        if mass is not None and not normalize and abs(mass - 1) > MASS:
            raise InputError(
                "does not have mass 1",
                where="function",
                got=f"an integral of {mass:.9g} over {'the circle' if dim == 2 else 'the sphere'}",
                expected=f"1, to {MASS:g}",
                fix="divide it by its integral, or pass normalize=True; densities are per unit of length or area:"
                " the uniform one is 1/2π or 1/4π",
            )
        if mass is not None and mass <= 0:
            raise InputError("has no mass", where="function", got="zero everywhere on the grid", expected="∫ > 0")
        c = W.analyse(F / W.integral(F))
        density = cls(c.at[0].set(1 / math.sqrt(area(dim))), dim)
        density.check_resolved("function", f"a larger degree than {degree}, or a smoother function")
        return density

    @classmethod
    def from_cloud(cls, cloud: Cloud, *, degree: int, bandwidth: Real | None = None) -> "Density":
        """The cloud after Brownian motion of length h: c_k = e^{−h² l(l+d−2)/2} Σ_j w_j Y_k(x_j).

        Smoothing moves each token by about h radians in every direction: the coefficients of degree l lose a fraction
        h² l(l+d−2)/2, and their random errors n^{-1/2} are damped as much.

        Args:
            cloud: tokens on S¹ or S².
            bandwidth: h in radians, at least 4.5/N, or the density would have negative values. None: the larger of
                4.5/N and Scott's n^{-1/(d+3)} √(1 − |x̄|²), n = 1/Σ w². For coefficients that are not smoothed take
                `meanfield.coefficients(cloud, degree)`.

        Raises:
            InputError: tokens off the sphere or in d > 3, a bandwidth that the degree does not resolve.
        """
        check_degree(degree)
        c = coefficients(cloud, degree)
        d, least = cloud.points.shape[1], RESOLVED / degree
        if bandwidth is None:
            spread = jnp.sqrt(jnp.maximum(1 - jnp.sum(cloud.mean**2), 0))
            h = jnp.maximum(least, spread * jnp.sum(cloud.weights**2) ** (1 / (d + 3)))
        else:
            if is_concrete(bandwidth) and not float(bandwidth) >= least * (1 - 1e-9):
                raise InputError(
                    "is finer than the degree resolves: the density would be negative between tokens",
                    where="bandwidth",
                    got=bandwidth,
                    expected=f"at least {RESOLVED}/{degree} = {least:.3g} radians",
                    fix="raise the degree, or leave bandwidth out",
                )
            h = jnp.asarray(bandwidth, c.dtype)
        return cls(c * jnp.exp(-(h**2) / 2 * jnp.asarray(laplacian(d, degree), c.dtype)), d)

    @property
    def degree(self) -> int:
        """N."""
        N = degree_of(self.dim, self.coefficients.shape[-1])
        assert N is not None
        return N

    @property
    def mass(self) -> Float[Array, "*t"]:
        """∫ρ."""
        return self.coefficients[..., 0] * math.sqrt(area(self.dim))

    @property
    def mean(self) -> Float[Array, "*t d"]:
        """∫x ρ(x) dx."""
        order = [1, 2] if self.dim == 2 else [3, 1, 2]
        if self.degree == 0:
            return jnp.zeros((*self.coefficients.shape[:-1], self.dim), self.coefficients.dtype)
        return self.coefficients[..., np.array(order)] * math.sqrt(area(self.dim) / self.dim)

    @property
    def power(self) -> Float[Array, "*t l"]:
        """Σ_m c_lm² of each degree l = 0..N: where it does not fall to rounding, the degree is too low."""
        lead = self.coefficients.shape[:-1]
        of_l = jnp.zeros((*lead, self.degree + 1), self.coefficients.dtype)
        return of_l.at[..., degrees(self.dim, self.degree)].add(self.coefficients**2)

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """ρ(x) at unit vectors. Cost O(n K)."""
        self._single()
        return evaluate(self.coefficients, x)

    def at_degree(self, degree: int) -> "Density":
        """With more coefficients (zeros), or with those above a degree left out."""
        K = size(self.dim, degree)
        c = self.coefficients[..., :K]
        return Density(jnp.pad(c, [(0, 0)] * (c.ndim - 1) + [(0, K - c.shape[-1])]), self.dim)

    def sample(self, key: PRNGKey, *, n: int) -> Cloud:
        """n independent tokens of equal weight, by inversion of distribution functions: exact where ρ ≥ 0."""
        self._single()
        return Cloud(draw(self.coefficients, self.dim, key, n))

    def check_resolved(self, where: str, fix: str) -> None:
        """Raise InputError if ρ can be seen and dips below 0 by more than 1e-3 of its largest value."""
        if not is_concrete(self.coefficients):
            return
        # A known density that meets a jit: nothing of this question is traced.
        with jax.ensure_compile_time_eval():
            F = _seen(self)
            low, high = float(jnp.min(F)), float(jnp.max(F))
        if low < -NEGATIVE * high:
            raise InputError(
                "is a density with negative values at this degree",
                where=where,
                got=f"values from {low:.3g} to {high:.3g}",
                expected=f"no less than −{NEGATIVE:g} of the largest",
                fix=f"take {fix}",
            )

    def _single(self) -> None:
        if self.coefficients.ndim != 1:
            raise InputError(
                "must be a single density", where="coefficients", got=self.coefficients.shape, fix="use jax.vmap"
            )


def least(density: Density) -> Scalar:
    """The smallest value of ρ on a grid of twice its degree: below 0 where the degree is too low."""
    return jnp.min(_seen(density))


def coefficients(cloud: Cloud, degree: int) -> Float[Array, "K"]:
    """Σ_j w_j Y_k(x_j), the coefficients that a density would have if it were this cloud. No smoothing.

    For n independent tokens of a density the error of each is normal and of size ≲ (n|S|)^{-1/2}. Cost O(n K).
    """
    check_single_cloud(cloud)
    if cloud.points.shape[1] not in (2, 3):
        raise InputError(
            "must lie on S¹ or S²", where="cloud.points", got=cloud.points.shape, expected="(n, 2) or (n, 3)"
        )
    check_on(Sphere(), cloud.points, "cloud.points")
    return moments(cloud.points, cloud.weights, degree)


def check_degree(degree: int) -> None:
    """Raise InputError unless there is a density of this degree."""
    check_positive(degree, "degree", "the density of degree 0 is Density.uniform")


def _seen(density: Density) -> Float[Array, " g"]:
    """ρ on a grid of twice its degree."""
    N = density.degree
    return waves(density.dim, N, max(2 * N, 4)).values(density.coefficients)


def _called(function: Callable[[Any], Any], points: np.ndarray) -> Array:
    """The values of a user's function on the grid, checked."""
    x = jnp.asarray(points, jnp.result_type(float))
    F = jnp.asarray(function(x))
    if F.shape != (len(points),):
        raise InputError(
            "returns the wrong shape",
            where="function",
            got=f"{F.shape} from points {points.shape}",
            expected=f"one value for each point, ({len(points)},)",
            fix="write it for many points at once, or pass jax.vmap of a function of one point",
        )
    F = as_float(F, "function")
    if is_concrete(F) and float(jnp.min(F)) < 0:
        raise InputError("is negative", where="function", got=float(jnp.min(F)), expected="a density ≥ 0")
    return F
