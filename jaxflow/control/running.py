"""What do controls cost on the way? ∫ |u|² dt and ∫ |u̇|² dt over all controls, with Frobenius norms.

Exact where the integrand is a polynomial or a trigonometric one: constant pieces, straight lines, Fourier. Everything
else by Gauss–Legendre quadrature with fixed nodes on fixed panels of every piece between edges.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.errors import InputError
from jaxflow.weights import AbstractSchedule, Fourier, Layer, Piecewise, Sampled

PANELS, NODES = 8, 16
"""Equal panels of a piece, and Gauss–Legendre nodes on each. A hidden layer of slope 8 has poles at a distance 0.2 from
[−1, 1]: 128 nodes in one panel would leave 1e-10 of an integral, these leave rounding."""


def effort(
    weights: AbstractSchedule, *, t1: float | None = None, prices: Mapping[str, Scalar | float] | None = None
) -> Scalar:
    """∫ p_A|A|² + p_B|B|² + p_V|V|² + p_b|b|² dt with Frobenius norms, over all heads.

    Args:
        weights: any deterministic schedule.
        t1: where the integral ends, for schedules without edges; others know it, `Fourier` too.
        prices: p, by name; 1 for controls that are not named.

    Raises:
        InputError: nothing says where the schedule ends, or two things do.

    Exact for `Piecewise`, `Sampled` and `Fourier`; otherwise by quadrature with 128 nodes on every smooth piece.
    """
    _check_horizon(weights, t1)
    if isinstance(weights, Piecewise):
        durations = jnp.diff(jnp.asarray(weights.edges))
        parts = [p * (durations.astype(x.dtype) @ _rows(x**2)) for p, x in _controls(weights.layers, prices)]
        return jnp.sum(jnp.stack(parts))
    if isinstance(weights, Sampled):
        h = jnp.diff(weights.ts)
        # ∫₀¹ |(1−c)x + cy|² dc = (|x|² + ⟨x, y⟩ + |y|²)/3.
        parts = [
            p * (h @ _rows(x[:-1] ** 2 + x[:-1] * x[1:] + x[1:] ** 2)) / 3 for p, x in _controls(weights.layers, prices)
        ]
        return jnp.sum(jnp.stack(parts))
    if isinstance(weights, Fourier):
        share = jnp.full(2 * weights.modes + 1, 0.5 * weights.t1, weights.layers.dtype).at[0].mul(2.0)
        return jnp.sum(jnp.stack([p * (share @ _rows(x**2)) for p, x in _controls(weights.layers, prices)]))
    return _quadrature(weights, weights.at, t1, prices)


def smoothness(weights: AbstractSchedule, *, t1: float | None = None) -> Scalar:
    """∫ |Ȧ|² + |Ḃ|² + |V̇|² + |ḃ|² dt; for constant pieces Σ|u_{i+1} − u_i|²/h with h between their middles.

    Args and Raises: as for `effort`. Exact for `Sampled` and `Fourier`.
    """
    _check_horizon(weights, t1)
    if isinstance(weights, Piecewise):
        durations = np.diff(np.asarray(weights.edges))
        return _jumps(weights.layers, jnp.asarray((durations[:-1] + durations[1:]) / 2, weights.layers.dtype))
    if isinstance(weights, Sampled):
        return _jumps(weights.layers, jnp.diff(weights.ts))
    if isinstance(weights, Fourier):
        m = np.repeat(np.arange(1, weights.modes + 1), 2)
        share = jnp.asarray(np.append(0.0, 0.5 * weights.t1 * (2 * np.pi * m / weights.t1) ** 2), weights.layers.dtype)
        return jnp.sum(jnp.stack([share @ _rows(x**2) for _, x in _controls(weights.layers)]))
    return _quadrature(weights, lambda t: jax.jvp(weights.at, (t,), (jnp.ones_like(t),))[1], t1)


def _controls(layer: Layer, prices: Mapping[str, Scalar | float] | None = None) -> list[tuple[Scalar | float, Array]]:
    """(price, control)."""
    prices = prices or {}
    return [(prices.get(name, 1.0), x) for name in "ABVb" if (x := getattr(layer, name)) is not None]


def _rows(x: Array) -> Float[Array, " n"]:
    return jnp.sum(x, axis=tuple(range(1, x.ndim)))


def _jumps(layers: Layer, h: Array) -> Scalar:
    parts = [_rows((x[1:] - x[:-1]) ** 2) @ (1 / h) for _, x in _controls(layers)]
    return jnp.sum(jnp.stack(parts))


def _check_horizon(weights: AbstractSchedule, t1: float | None) -> None:
    known = bool(weights.edges) or isinstance(weights, Piecewise | Sampled | Fourier)
    if known == (t1 is not None):
        raise InputError(
            "is known from the schedule" if known else "is needed for a schedule without edges", where="t1", got=t1
        )


def _quadrature(
    weights: AbstractSchedule,
    at: Callable[[Array], Layer],
    t1: float | None,
    prices: Mapping[str, Scalar | float] | None = None,
) -> Scalar:
    """∫ of the squared norms of these layers."""
    coarse = np.asarray(weights.edges or (0.0, t1), float)
    inner = coarse[:-1, None] + np.diff(coarse)[:, None] * np.arange(PANELS) / PANELS
    edges = np.append(inner, coarse[-1])
    x, w = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(edges)[:, None] / 2
    times, shares = (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()
    dtype = weights.at(0.0).dtype
    layers = jax.vmap(at)(jnp.asarray(times, dtype))
    parts = [p * (jnp.asarray(shares, dtype) @ _rows(x**2)) for p, x in _controls(layers, prices)]
    return jnp.sum(jnp.stack(parts))
