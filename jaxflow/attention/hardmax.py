"""Attention at zero temperature: a_h(x) is the mean of the tokens that maximise ⟨B_h x, x_j⟩, the leaders of x.

    a_h(x) = lim_{β→∞} Σ_j w_j e^{β⟨q, x_j⟩} x_j / Σ_j w_j e^{β⟨q, x_j⟩},      q = B_h x

which averages tied leaders by their weights. It is piecewise constant: it jumps where the leader changes, and its
derivative in q is zero elsewhere.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow.attention.base import Tilted
from jaxflow.attention.blocks import by_blocks


def hardmax(
    q: Float[Array, "h n d"],
    x: Float[Array, "m d"],
    log_w: Float[Array, " m"],
    *,
    causal: bool = False,
    block: int | None = None,
) -> Tilted:
    """The mean of the leaders of every query, as `mean`; `log_m` is max_j ⟨q, x_j⟩, the limit of β^{-1} log m at βq.

    Args:
        q, x, log_w, causal: as for every kernel (`attention.AbstractKernel`).
        block: queries per block; None: as `Chunked` chooses.

    Tokens tie when ⟨q, x_j⟩ differs from the maximum by less than its rounding, 4(d + 2)ε|q| max|x_j|.

    Cost: O(h n m d), memory O(h · block · m).

    Source: arXiv:2407.01602 (leaders and clusters of hardmax attention).
    """
    h, _, d = q.shape
    longest = jnp.sqrt(jnp.max(jnp.sum(x * x, -1)))
    # Shifted so that the heaviest token has weight 1: log weights may be far below the smallest exponent.
    w = jnp.exp(log_w - jnp.max(log_w))

    def rows(q: Array, first: Array | int) -> tuple[Array, Array]:
        s = jnp.einsum("nhd,md->nhm", q, x)
        if causal:
            seen = jnp.arange(x.shape[0])[None] <= first + jnp.arange(q.shape[0])[:, None]
            s = jnp.where(seen[:, None], s, -jnp.inf)
        top = jnp.max(s, axis=-1, keepdims=True)
        rounding = 4 * (d + 2) * jnp.finfo(x.dtype).eps * longest
        slack = rounding * jnp.sqrt(jnp.sum(q * q, -1, keepdims=True))
        p = jnp.where(s >= top - slack, w[None, None], 0)
        return top[..., 0], jnp.einsum("nhm,md->nhd", p, x) / jnp.sum(p, axis=-1, keepdims=True)

    top, mean = by_blocks(rows, jnp.moveaxis(q, 1, 0), pairs=h * x.shape[0], block=block)
    return Tilted(top.T, jnp.moveaxis(mean, 0, 1), None)
