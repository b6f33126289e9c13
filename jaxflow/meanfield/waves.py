"""Orthonormal functions on S¹ and S², their values and gradients on a grid, and what a grid integrates.

    S¹   1/√2π,  cos(mφ)/√π,  sin(mφ)/√π                                               K = 2N + 1
    S²   Y_lm = P̄_l|m|(cos θ) · 1, √2 cos(mφ) (m > 0), √2 sin(|m|φ) (m < 0)            K = (N + 1)²

in this order: by degree l, on S² by m = −l … l within a degree. The grid is equal angles on S¹, Gauss–Legendre
latitudes of equal angles on S²; its weights are exact for polynomials up to degree 2L + 1. Gradients have components
along the coordinate directions e_φ, on S² (e_θ, e_φ):

    ∂_θ P̄_lm = (l z P̄_lm − √((l² − m²)(2l+1)/(2l−1)) P̄_{l−1,m})/sin θ,      e_φ: ∂_φ/sin θ
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def area(dim: int) -> float:
    """|S^{dim−1}|: 2π, 4π."""
    return 2 * math.pi if dim == 2 else 4 * math.pi


def size(dim: int, degree: int) -> int:
    """K, how many functions there are up to this degree."""
    return 2 * degree + 1 if dim == 2 else (degree + 1) ** 2


def degree_of(dim: int, size: int) -> int | None:
    """The degree with this many functions; None if there is none."""
    N = (size - 1) // 2 if dim == 2 else math.isqrt(size) - 1
    return N if N >= 0 and size == (2 * N + 1 if dim == 2 else (N + 1) ** 2) else None


def degrees(dim: int, degree: int) -> np.ndarray:
    """l of each function, (K,)."""
    l = np.arange(degree + 1)
    return np.repeat(l, np.where(l == 0, 1, 2) if dim == 2 else 2 * l + 1)


def laplacian(dim: int, degree: int) -> np.ndarray:
    """l(l + d − 2) of each function, the eigenvalue of −Δ, (K,)."""
    l = degrees(dim, degree)
    return (l * (l + dim - 2)).astype(float)


@final
@dataclass(frozen=True, eq=False)
class Waves:
    """The functions up to degree N on the grid of degree L ≥ N.

    Attributes:
        dim: d, 2 or 3. degree: N.
        points: x_g, (g, d). weights: with Σ_g weights_g F(x_g) = ∫F dx up to degree 2L + 1, (g,).
        frame: unit tangent vectors in the directions of the components of gradients, (d − 1, g, d).
        along: on S¹ values and slopes, (2, K, g); on S² cos mφ and sin mφ, (2, m, φ).
        across: on S² P̄_lm, ∂_θ P̄_lm and m P̄_lm/sin θ, (3, m, l, θ); None on S¹.
    """

    dim: int
    degree: int
    points: np.ndarray
    weights: np.ndarray
    frame: np.ndarray
    along: np.ndarray
    across: np.ndarray | None

    def values(self, c: Float[Array, "K"]) -> Float[Array, "g"]:
        """Σ_k c_k Y_k(x_g)."""
        along = jnp.asarray(self.along, c.dtype)
        if self.across is None:
            return c @ along[0]
        P = jnp.asarray(self.across[0], c.dtype)
        of_m = jnp.einsum("mlt,pml->pmt", P, self._by_order(c))
        return jnp.einsum("pmf,pmt->tf", along, of_m).reshape(-1)

    def gradient(self, c: Float[Array, "K"]) -> Float[Array, "e g"]:
        """Σ_k c_k ∇Y_k(x_g), in components."""
        along = jnp.asarray(self.along, c.dtype)
        if self.across is None:
            return (c @ along[1])[None]
        _, dP, mP = (jnp.asarray(table, c.dtype) for table in self.across)
        cos, sin = along
        a = self._by_order(c)
        south = jnp.einsum("pmf,pmt->tf", along, jnp.einsum("mlt,pml->pmt", dP, a))
        of_cos, of_sin = jnp.einsum("mlt,pml->pmt", mP, a)
        east = jnp.einsum("mf,mt->tf", cos, of_sin) - jnp.einsum("mf,mt->tf", sin, of_cos)
        return jnp.stack([south.reshape(-1), east.reshape(-1)])

    def analyse(self, F: Float[Array, "g"]) -> Float[Array, "K"]:
        """∫F Y_k dx, by the grid."""
        return _transpose(self.values, self, F.dtype)(jnp.asarray(self.weights, F.dtype) * F)

    def against_gradients(self, flux: Float[Array, "e g"]) -> Float[Array, "K"]:
        """∫⟨flux, ∇Y_k⟩ dx, by the grid: −div in weak form."""
        return _transpose(self.gradient, self, flux.dtype)(jnp.asarray(self.weights, flux.dtype)[None] * flux)

    def integral(self, F: Float[Array, "g"]) -> Float[Array, ""]:
        """∫F dx, by the grid."""
        return jnp.asarray(self.weights, F.dtype) @ F

    def _by_order(self, c: Float[Array, "K"]) -> Float[Array, "2 m l"]:
        """Coefficients of cos mφ and of sin mφ, by m and l; 0 for l < |m|."""
        place, there = places(self.degree)
        return jnp.where(there, c[place], 0)


def _transpose(linear: Callable[[Array], Array], waves: Waves, dtype: Any) -> Callable[[Array], Array]:
    """The transpose of a map from coefficients to the grid."""
    c = jax.ShapeDtypeStruct((size(waves.dim, waves.degree),), dtype)
    return lambda F: jax.linear_transpose(linear, c)(F)[0]


@functools.lru_cache(maxsize=32)
def places(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the coefficient of cos mφ, sin mφ of degree l stands, (2, m, l), and whether there is one."""
    m, l = np.arange(degree + 1)[:, None], np.arange(degree + 1)[None]
    place = np.stack([l * l + l + m, l * l + l - m])
    there = np.stack([m <= l, (m <= l) & (m > 0)])
    return np.where(there, place, 0), there


@functools.lru_cache(maxsize=32)
def waves(dim: int, degree: int, grid: int) -> Waves:
    """The functions up to `degree` on the grid of degree `grid`, dim 2 or 3."""
    angles = np.pi * np.arange(2 * grid + 2) / (grid + 1)
    m = np.arange(degree + 1)[:, None]
    cos, sin = np.cos(m * angles), np.sin(m * angles)
    east = np.stack([-np.sin(angles), np.cos(angles)], axis=-1)
    if dim == 2:
        norm = np.sqrt(np.where(degrees(2, degree) == 0, 2 * np.pi, np.pi))[:, None]
        pairs = np.stack([cos[1:], sin[1:]], axis=1).reshape(2 * degree, -1)
        slopes = np.stack([-m[1:] * sin[1:], m[1:] * cos[1:]], axis=1).reshape(2 * degree, -1)
        along = np.stack([np.concatenate([cos[:1], pairs]), np.concatenate([0 * cos[:1], slopes])]) / norm
        weights = np.full(len(angles), 2 * np.pi / len(angles))
        points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        return Waves(dim, degree, points, weights, east[None], along, None)
    z, w = np.polynomial.legendre.leggauss(grid + 1)
    rho = np.sqrt((1 - z) * (1 + z))
    P = legendre(degree, z)
    l = np.arange(degree + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        lower = np.where(l > m, np.sqrt((l**2 - m**2) * (2 * l + 1) / np.maximum(2 * l - 1, 1)), 0)
    before = np.concatenate([np.zeros_like(P[:, :1]), P[:, :-1]], axis=1)
    dP = (l[None, :, None] * z * P - lower[..., None] * before) / rho
    across = np.stack([P, dP, m[..., None] * P / rho])
    theta, phi = np.meshgrid(np.arange(grid + 1), np.arange(2 * grid + 2), indexing="ij")
    theta, phi = theta.reshape(-1), phi.reshape(-1)
    x, y = np.cos(angles)[phi], np.sin(angles)[phi]
    points = np.stack([rho[theta] * x, rho[theta] * y, z[theta]], axis=-1)
    south = np.stack([z[theta] * x, z[theta] * y, -rho[theta]], axis=-1)
    east = np.concatenate([east[phi], np.zeros((len(phi), 1))], axis=-1)
    weights = w[theta] * 2 * np.pi / len(angles)
    return Waves(dim, degree, points, weights, np.stack([south, east]), np.stack([cos, sin]), across)


def legendre(degree: int, z: np.ndarray) -> np.ndarray:
    """P̄_lm(z), times √2 for m > 0, so that Y_lm is orthonormal: (m, l, z).

    P̄_mm = √((2m+1)/2m) ρ P̄_{m−1,m−1},      P̄_lm = α_lm z P̄_{l−1,m} − β_lm P̄_{l−2,m}
    """
    P = np.zeros((degree + 1, degree + 1, len(z)))
    rho = np.sqrt((1 - z) * (1 + z))
    alpha, beta, first = recurrence(degree)
    for m in range(degree + 1):
        P[m, m] = first[m] * rho**m
        for l in range(m + 1, degree + 1):
            P[m, l] = alpha[l, m] * z * P[m, l - 1] - beta[l, m] * P[m, l - 2]
    return P


@functools.lru_cache(maxsize=16)
def recurrence(degree: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """α_lm and β_lm, (l, m), 0 unless l > m; and P̄_mm/ρ^m, (m,)."""
    l, m = np.arange(degree + 1)[:, None], np.arange(degree + 1)[None]
    above = l > m
    ll, mm = np.where(above, l, 1) ** 2, np.where(above, m, 0) ** 2
    alpha = np.where(above, np.sqrt((4 * ll - 1) / (ll - mm)), 0.0)
    twice = l > m + 1
    ll, mm, lt = np.where(twice, l, 2) ** 2, np.where(twice, m, 0) ** 2, np.where(twice, l, 2)
    beta = np.where(twice, np.sqrt((2 * lt + 1) * ((lt - 1) ** 2 - mm) / ((2 * lt - 3) * (ll - mm))), 0.0)
    steps = np.sqrt((2 * m[0, 1:] + 1) / (2 * m[0, 1:]))
    first = np.sqrt(1 / (4 * np.pi)) * np.cumprod(np.concatenate([[1.0], steps]))
    return alpha, beta, first * np.where(m[0] > 0, math.sqrt(2), 1.0)
