"""The energy distance: D(μ, ν) = 2 E|X − Y| − E|X − X'| − E|Y − Y'|, with X, X' ~ μ and Y, Y' ~ ν independent."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.attention.blocks import by_blocks
from jaxflow.linalg import safe_norm
from jaxflow.measures import Cloud
from jaxflow.transport.pairs import check_pair


def energy_distance(first: Cloud, second: Cloud, *, block: int | None = None) -> Scalar:
    """D of two weighted clouds, exactly (the sum over all pairs). ≥ 0, zero only for equal measures; √D is a metric.

    Normalised so that D(δ_x, δ_y) = 2|x − y|: no factor ½ and no square root. Differentiable, also where points
    coincide: there |x − y| counts as flat. D grows like a distance far away and like its square near coincidence, so
    that its gradient neither explodes nor points to single neighbours as that of an assignment does.

    Args:
        first, second: clouds of any sizes and weights, (n, d) and (m, d).
        block: rows of pairs at a time; None: half a million differences on a CPU, four million elsewhere.

    Raises:
        InputError: see `check_pair`.

    Cost: O((n+m)² d) time, O((n+m) · block · d) memory, in derivatives too.
    Source: Székely, Rizzo, J. Statist. Plann. Inference 143 (2013), equation (5) with its square root left out.
    """
    check_pair(first, second)
    x, y, w, v = first.points, second.points, first.weights, second.weights

    def mean_distances(rows: Float[Array, "n d"], cloud: Float[Array, "m d"], weights: Float[Array, " m"]) -> Array:
        return by_blocks(
            lambda some, _: safe_norm(some[:, None] - cloud[None]) @ weights, rows, pairs=cloud.size, block=block
        )

    across = w @ mean_distances(x, y, v)
    return jnp.asarray(2 * across - w @ mean_distances(x, x, w) - v @ mean_distances(y, y, v))
