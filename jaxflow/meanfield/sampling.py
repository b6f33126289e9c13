"""Independent points from a density, by inversion of distribution functions:

    S¹   ∫₀^φ ρ = u
    S²   ∫₋₁^z ∫ρ dφ dz = u,   then, at this z,   ∫₀^φ ρ(z, φ) dφ = u' ∫₀^{2π} ρ(z, φ) dφ

Both are finite sums in closed form: ∫₋₁^z P_l = (P_{l+1} − P_{l−1})/(2l+1). Roots by bisection, to rounding.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._typing import PRNGKey
from jaxflow.attention.blocks import by_blocks
from jaxflow.meanfield.waves import degree_of, places, recurrence

Sums = tuple[Array, Array, Array]


def draw(c: Float[Array, "K"], dim: int, key: PRNGKey, n: int) -> Float[Array, "n d"]:
    """n points of the density with these coefficients. Cost O(n N) on S¹, O(n N²) on S²."""
    N = degree_of(dim, c.shape[0])
    assert N is not None
    if dim == 2:
        u = jax.random.uniform(key, (n, 1), c.dtype)
        of_cos, of_sin = jnp.concatenate([c[:1] / np.sqrt(2), c[1::2]]), jnp.concatenate([0 * c[:1], c[2::2]])

        def around(u: Array, _: Any) -> Array:
            shape = (N + 1, len(u))
            a, b = (jnp.broadcast_to(a[:, None] / np.sqrt(np.pi), shape) for a in (of_cos, of_sin))
            return _angle(a, b, u[:, 0])

        phi = by_blocks(around, u, pairs=4 * (N + 1))
        return jnp.stack([jnp.cos(phi), jnp.sin(phi)], -1)
    u = jax.random.uniform(key, (n, 2), c.dtype)
    place, there = places(N)
    a = jnp.where(there, c[place], 0)
    marginal = a[0, 0] * jnp.asarray(np.sqrt((2 * np.arange(N + 1) + 1) * np.pi), c.dtype)

    def point(u: Array, _: Any) -> Array:
        z = _bisect(lambda z: _below(marginal, z), jnp.full(len(u), -1.0, c.dtype), 2.0, u[:, 0])
        rho = jnp.sqrt((1 - z) * (1 + z))
        phi = _angle(*_of_m(a, z, rho), u[:, 1])
        return jnp.stack([rho * jnp.cos(phi), rho * jnp.sin(phi), z], -1)

    return by_blocks(point, u, pairs=8 * (N + 1))


def _bisect(F: Callable[[Array], Array], low: Array, width: float, u: Array) -> Array:
    """x in [low, low + width] with F(x) = u, F rising."""
    steps = 54 if u.dtype == jnp.float64 else 25

    def halve(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], None]:
        low, width = carry
        middle = low + width / 2
        return (jnp.where(F(middle) < u, middle, low), width / 2), None

    (low, width), _ = jax.lax.scan(halve, (low, jnp.asarray(width, u.dtype)), None, length=steps)
    return low + width / 2


def _angle(of_cos: Float[Array, "m n"], of_sin: Float[Array, "m n"], u: Float[Array, " n"]) -> Float[Array, " n"]:
    """φ with ∫₀^φ Σ_m a_m cos mφ + b_m sin mφ = u ∫₀^{2π}; ∫₀^φ = a_0 φ + Σ_m (a_m sin mφ + b_m (1 − cos mφ))/m."""
    m = jnp.maximum(jnp.arange(of_cos.shape[0]), 1)[:, None].astype(u.dtype)
    rising, falling = of_cos[1:] / m[1:], of_sin[1:] / m[1:]
    shift = jnp.sum(falling, axis=0)

    def F(phi: Array) -> Array:
        cos, sin = jnp.cos(phi), jnp.sin(phi)

        def step(
            carry: tuple[Array, Array, Array], row: tuple[Array, Array]
        ) -> tuple[tuple[Array, Array, Array], None]:
            c_m, s_m, total = carry
            up, down = row
            total = total + up * s_m - down * c_m
            return (c_m * cos - s_m * sin, s_m * cos + c_m * sin, total), None

        total = jax.lax.scan(step, (cos, sin, shift), (rising, falling))[0][2]
        return of_cos[0] * phi + total

    return _bisect(F, jnp.zeros_like(u), 2 * np.pi, u * 2 * np.pi * of_cos[0])


def _below(marginal: Float[Array, " l"], z: Float[Array, " n"]) -> Float[Array, " n"]:
    """∫₋₁^z Σ_l f_l P_l."""
    l = jnp.arange(marginal.shape[0])

    def step(carry: Sums, row: tuple[Array, Array]) -> tuple[Sums, None]:
        now, before, total = carry
        l, f = row
        after = ((2 * l + 1) * z * now - l * before) / (l + 1)
        return (after, now, total + f * (after - before) / (2 * l + 1)), None

    # ∫₋₁^z P_0 = z + 1 = P_1 − P_{−1} with P_{−1} = −1.
    first = (jnp.ones_like(z), -jnp.ones_like(z), jnp.zeros_like(z))
    return jax.lax.scan(step, first, (l, marginal))[0][2]


def _of_m(a: Float[Array, "2 m l"], z: Float[Array, " n"], rho: Float[Array, " n"]) -> tuple[Array, Array]:
    """Coefficients of cos mφ and sin mφ at these z, (m, n)."""
    N = a.shape[1] - 1
    alpha, beta, first = (jnp.asarray(table, z.dtype) for table in recurrence(N))
    power = jnp.cumprod(jnp.concatenate([jnp.ones_like(rho)[None], jnp.broadcast_to(rho, (N, len(rho)))]), axis=0)

    def step(carry: Sums, row: tuple[Array, ...]) -> tuple[Sums, None]:
        now, before, total = carry
        l, a_l, alpha_l, beta_l = row
        P = alpha_l[:, None] * z[None] * now - beta_l[:, None] * before
        P = jnp.where((jnp.arange(N + 1) == l)[:, None], first[:, None] * power, P)
        return (P, now, total + a_l[..., None] * P[None]), None

    zero = jnp.zeros((N + 1, len(z)), z.dtype)
    rows = (jnp.arange(N + 1), jnp.moveaxis(a, 2, 0), alpha, beta)
    of_cos, of_sin = jax.lax.scan(step, (zero, zero, jnp.zeros((2, *zero.shape), z.dtype)), rows)[0][2]
    return of_cos, of_sin
