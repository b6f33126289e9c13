"""Functions on S¹ and S² as polynomials of degree L in the coordinates: a grid, a basis, and the way between them.

    S¹   (x + iy)^m,                m ≤ L
    S²   T_k(z) (x + iy)^m,         k + m ≤ L,  T_k Chebyshev's polynomials

Real and imaginary parts of these span what spherical harmonics of degree ≤ L span. They are evaluated without
recursions over two indices, and smooth at the poles. A function enters through its values on a grid:

    S¹   F̂_m = 2/G Σ_g F(x_g) e^{−imφ_g}
    S²   F̂_lm = Σ_g w_g F(x_g) Y_lm(x_g)   on Gauss–Legendre nodes × equal angles (exact to degree 2L + 1),
         and Y_lm = q_lm(z) (x + iy)^m, with the coefficients of q_lm in T_k

Projection onto Y_lm comes before conversion into T_k: the coefficients of q_lm grow like 2^{0.7 L}, but meet F̂_lm that
have fallen off by then. Straight from the grid to T_k they would meet rounding errors of the size of F.
"""

import functools
from dataclasses import dataclass
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

LARGEST_DEGREE = {(2, 4): 200, (2, 8): 1000, (3, 4): 40, (3, 8): 80}
"""By dimension and bytes of a number: where 2^{0.7 L} eats its precision on S²; how much work is sensible on S¹."""


def _powers(x: Float[Array, "n d"], L: int) -> tuple[Float[Array, "m n"], Float[Array, "m n"]]:
    """Real and imaginary parts of (x + iy)^m, m = 0..L."""

    def step(p: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        re, im = p
        return (re * x[:, 0] - im * x[:, 1], re * x[:, 1] + im * x[:, 0]), p

    return jax.lax.scan(step, (jnp.ones_like(x[:, 0]), jnp.zeros_like(x[:, 0])), None, length=L + 1)[1]


@final
@dataclass(frozen=True, eq=False)
class CircleGrid:
    """S¹: 2L + 2 equal angles.

    Attributes:
        degree: L.
        points: (g, 2).
        size: K = 2L + 1 functions.
    """

    degree: int
    points: np.ndarray
    size: int
    analysis: np.ndarray

    def basis(self, x: Float[Array, "n d"]) -> Float[Array, "K n"]:
        re, im = _powers(x, self.degree)
        return jnp.concatenate([re, im[1:]])

    def analyse(self, F: Float[Array, "g c"]) -> Float[Array, "K c"]:
        """Coefficients of the polynomial that has, up to degree L, the values F on the grid."""
        return jnp.asarray(self.analysis, F.dtype) @ F


@final
@dataclass(frozen=True, eq=False)
class SphereGrid:
    """S²: L + 1 Gauss–Legendre latitudes of 2L + 2 equal angles; L even.

    The functions T_k(z) Re, Im (x + iy)^m are kept in a square, (L+1) × (L+1): column c holds order m = c above the
    diagonal and order L + 1 − c below, so that no place is empty.

    Attributes:
        degree: L.
        points: (g, 3).
        size: K = (L + 1)² functions.
        dft: (m, 2, φ), cosines and sines.
        project: (m, l, θ), onto Y_lm.
        convert: (m, k, l), from Y_lm to T_k (x + iy)^m.
    """

    degree: int
    points: np.ndarray
    size: int
    dft: np.ndarray
    project: np.ndarray
    convert: np.ndarray

    @property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        """m and part (0 real, 1 imaginary) of the columns above the diagonal."""
        half = self.degree // 2
        m = np.arange(1, half + 1)
        return np.concatenate([[0], m, m]), np.repeat([0, 1], [1 + half, half])

    def basis(self, x: Float[Array, "n d"]) -> Float[Array, "K n"]:
        L, half, z = self.degree, self.degree // 2, x[:, 2]

        def step(T: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            now, before = T
            return (2 * z * now - before, now), now

        T = jax.lax.scan(step, (jnp.ones_like(z), z), None, length=L + 1)[1]
        re, im = _powers(x, L)
        above = jnp.concatenate([re[: half + 1], im[1 : half + 1]])
        below = jnp.concatenate([re[:1], re[:half:-1], im[:half:-1]])
        s, m = np.arange(L + 1), self._columns[0]
        upper = s[:, None] <= L - m[None]
        square = jnp.where(upper[..., None], T[:, None] * above[None], T[::-1, None] * below[None])
        return square.reshape(self.size, -1)

    def analyse(self, F: Float[Array, "g c"]) -> Float[Array, "K c"]:
        """Coefficients of the projection of F, known on the grid, onto polynomials of degree ≤ L."""
        L = self.degree
        dft, project, convert = (jnp.asarray(a, F.dtype) for a in (self.dft, self.project, self.convert))
        of_m = jnp.einsum("mpf,tfc->mptc", dft, F.reshape(L + 1, 2 * L + 2, -1))
        of_lm = jnp.einsum("mlt,mptc->mplc", project, of_m)
        of_km = jnp.einsum("mkl,mplc->mpkc", convert, of_lm)
        (m, part), s = self._columns, np.arange(L + 1)[:, None]
        upper = s <= L - m[None]
        m, k = np.where(upper, m[None], L + 1 - m[None]), np.where(upper, s, L - s)
        return of_km[m, part[None], k].reshape(self.size, -1)


Harmonics = CircleGrid | SphereGrid


@functools.lru_cache(maxsize=16)
def harmonics(dim: int, degree: int) -> Harmonics:
    """Polynomials of this degree on S^{dim−1}, dim 2 or 3. On S² the degree must be even."""
    angles = np.pi * np.arange(2 * degree + 2) / (degree + 1)
    m = np.arange(degree + 1)[:, None]
    waves = np.stack([np.cos(m * angles), np.sin(m * angles)], axis=1) / (degree + 1)
    waves[0] /= 2
    if dim == 2:
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return CircleGrid(degree, circle, 2 * degree + 1, np.concatenate([waves[:, 0], waves[1:, 1]]))
    z, w = _gauss_legendre(degree + 1)
    rho = np.sqrt((1 - z) * (1 + z))
    project, convert = _legendre(degree, z, w)
    points = np.stack(
        [
            np.outer(rho, np.cos(angles)),
            np.outer(rho, np.sin(angles)),
            np.outer(z, np.ones_like(angles)),
        ],
        axis=-1,
    )
    return SphereGrid(
        degree,
        points.reshape(-1, 3).astype(float),
        (degree + 1) ** 2,
        waves,
        project.astype(float),
        convert.astype(float),
    )


def _gauss_legendre(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights in extended precision where there is one: NumPy's, and one step of Newton's method."""
    z = np.polynomial.legendre.leggauss(n)[0].astype(np.longdouble)

    def last_two(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        before, now = np.ones_like(z), z
        for l in range(2, n + 1):
            before, now = now, ((2 * l - 1) * z * now - (l - 1) * before) / l
        return before, now

    before, now = last_two(z)
    z = z - now * (z * z - 1) / (n * (z * now - before))
    before, now = last_two(z)
    slope = n * (z * now - before) / (z * z - 1)
    return z, 2 / ((1 - z * z) * slope**2)


def _legendre(L: int, z: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, l, θ): 2π w P̄_lm(z), and (m, k, l): the coefficients of q_lm = P̄_lm/ρ^m in T_k. Here Y_lm is P̄_lm(z) times 1
    or √2 cos mφ, √2 sin mφ; both factors √2 are in the sums over φ.  P̄_lm = α z P̄_{l−1,m} − β P̄_{l−2,m}."""
    project = np.zeros((L + 1, L + 1, L + 1), z.dtype)
    convert = np.zeros((L + 1, L + 1, L + 1), z.dtype)
    pi = 4 * np.arctan(np.longdouble(1))
    first = 1 / np.sqrt(4 * pi)
    for m in range(L + 1):
        if m > 0:
            first = first * np.sqrt(np.longdouble(2 * m + 1) / (2 * m))
        P = {m - 1: np.zeros_like(z), m: first * (1 - z * z) ** (np.longdouble(m) / 2)}
        q = {m - 1: np.zeros(L + 2, z.dtype), m: np.eye(1, L + 2, dtype=z.dtype)[0] * first}
        for l in range(m + 1, L + 1):
            ll, mm = np.longdouble(l * l), m * m
            alpha = np.sqrt((4 * ll - 1) / (ll - mm))
            beta = np.sqrt((2 * l + 1) * ((l - 1) ** 2 - mm) / ((2 * l - 3) * (ll - mm))) if l > m + 1 else 0
            P[l] = alpha * z * P[l - 1] - beta * P[l - 2]
            q[l] = alpha * _times_z(q[l - 1]) - beta * q[l - 2]
        for l in range(m, L + 1):
            project[m, l], convert[m, :, l] = 2 * pi * w * P[l], q[l][: L + 1]
    return project, convert


def _times_z(c: np.ndarray) -> np.ndarray:
    """z Σ c_k T_k = Σ c'_k T_k:  z T_k = (T_{k+1} + T_{k−1})/2,  z T_0 = T_1."""
    out = np.zeros_like(c)
    out[1:] += c[:-1] / 2
    out[:-1] += c[1:] / 2
    out[1] += c[0] / 2
    return out
