"""The sliced Wasserstein distance: W₂ of the shadows of two clouds on lines, averaged over the lines.

    SW₂²(μ, ν) = mean over unit θ of ∫₀¹ (F_θ^{-1}(u) − G_θ^{-1}(u))² du

with the quantile functions of ⟨x, θ⟩ under μ and ν. Between translates by s it is |s|²/d, and SW₂ ≤ W₂/√d.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._typing import PRNGKey, Scalar
from jaxflow.errors import InputError
from jaxflow.measures import Cloud
from jaxflow.transport.pairs import check_pair

DIRECTIONS = 60
"""Divisible by every dimension up to 6, so that the lines form whole orthonormal frames."""


def sliced_wasserstein_squared(
    first: Cloud, second: Cloud, *, directions: int = DIRECTIONS, key: PRNGKey | None = None
) -> Scalar:
    """SW₂² by the mean over finitely many lines; differentiable in points and weights (almost everywhere).

    Args:
        first, second: clouds of any sizes and weights, (n, d) and (m, d).
        directions: how many lines (one if d = 1). Lines come in orthonormal frames, so that for a multiple of d
            the answer between translates is exact.
        key: draws the lines at random (the estimate is then unbiased). None: always the same lines, equispaced in the
            plane, so that the distance is one fixed function, as optimisers want it.

    Raises:
        InputError: see `check_pair`; directions < 1.

    Cost: O(directions · (n+m) log(n+m)). The average misses the integral over all lines by O(directions^{-1/2}), in the
    plane by O(directions^{-2}) or better.
    Source: Bonneel, Rabin, Peyré, Pfister, J. Math. Imaging Vis. 51 (2015); Rowland et al., arXiv:1903.03784 (frames).
    """
    check_pair(first, second)
    if directions < 1:
        raise InputError("must be at least 1", where="directions", got=directions)
    lines = _lines(directions, first.points.shape[1], key).astype(first.points.dtype)
    shadows = (first.points @ lines.T, second.points @ lines.T)
    if first.log_weights is None and second.log_weights is None and len(first.points) == len(second.points):
        return jnp.mean((jnp.sort(shadows[0], axis=0) - jnp.sort(shadows[1], axis=0)) ** 2)
    weights = first.weights, second.weights
    return jnp.mean(jax.vmap(lambda x, y: _quantile_gap(x, y, *weights), in_axes=1)(*shadows))


def sliced_wasserstein(
    first: Cloud, second: Cloud, *, directions: int = DIRECTIONS, key: PRNGKey | None = None
) -> Scalar:
    """SW₂ itself, with derivative 0 (not NaN) at coincidence; see `sliced_wasserstein_squared`."""
    square = sliced_wasserstein_squared(first, second, directions=directions, key=key)
    zero = square == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, square)))


def _lines(m: int, d: int, key: PRNGKey | None) -> Float[Array, "m d"]:
    """Unit vectors in m/d orthonormal frames, the last one cut off; in the plane without a key, equispaced."""
    if d == 1:
        return jnp.ones((1, 1))
    if d == 2 and key is None:
        angle = np.pi * (np.arange(m) + 0.5) / m
        return jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    frames = -(-m // d)
    if key is None:
        normal = jnp.asarray(np.random.default_rng(0).normal(size=(frames, d, d)))
    else:
        normal = jax.random.normal(key, (frames, d, d))
    # Q of a normal matrix is uniform up to signs of its columns, and a line has no sign.
    return jnp.swapaxes(jnp.linalg.qr(normal)[0], 1, 2).reshape(-1, d)[:m]


def _quantile_gap(x: Float[Array, " n"], y: Float[Array, " m"], w: Float[Array, " n"], v: Float[Array, " m"]) -> Scalar:
    """∫₀¹ (F^{-1} − G^{-1})² du: both quantile functions are constant between the merged cumulative weights."""

    def ends(x: Array, w: Array) -> tuple[Array, Array]:
        order = jnp.argsort(x)
        total = jnp.cumsum(w[order])
        return x[order], total / total[-1]

    (x, to_x), (y, to_y) = ends(x, w), ends(y, v)
    cuts = jnp.sort(jnp.concatenate([to_x, to_y]))
    lengths = jnp.diff(cuts, prepend=0.0)
    # Asked for in the middle of each interval, where rounding of its ends cannot choose the neighbour.
    middle = cuts - lengths / 2
    i = jnp.minimum(jnp.searchsorted(to_x, middle), x.shape[0] - 1)
    j = jnp.minimum(jnp.searchsorted(to_y, middle), y.shape[0] - 1)
    return jnp.sum(lengths * (x[i] - y[j]) ** 2)
