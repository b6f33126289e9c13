"""The reference: all n × m × h pairs at once, in three matrix products and one exponential."""

from typing import final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow.attention.base import AbstractKernel, Tilted


def tilt(
    q: Float[Array, "h n d"],
    x: Float[Array, "m d"],
    log_w: Float[Array, " m"],
    *,
    second: bool,
    causal: bool = False,
) -> Tilted:
    """All pairs of these queries with the cloud."""
    s = jnp.einsum("hnd,md->hnm", q, x) + log_w[None, None]
    if causal:
        seen = jnp.arange(x.shape[0])[None, :] <= jnp.arange(q.shape[1])[:, None]
        s = jnp.where(seen[None], s, -jnp.inf)
    # The shift cancels exactly, so it needs no derivative.
    top = jax.lax.stop_gradient(jnp.max(s, axis=-1, keepdims=True))
    p = jnp.exp(s - top)
    total = jnp.sum(p, axis=-1, keepdims=True)
    mean = jnp.einsum("hnm,md->hnd", p, x) / total
    square = None
    if second:
        m, d = x.shape
        pairs = (x[:, :, None] * x[:, None, :]).reshape(m, d * d)
        square = (jnp.einsum("hnm,me->hne", p, pairs) / total).reshape(*mean.shape, d)
    return Tilted((top + jnp.log(total))[..., 0], mean, square)


@final
class Dense(AbstractKernel):
    """Materialises the (h, n, m) array of pairs. Time O(h n m d), memory O(h n m). Best for small clouds."""

    def __call__(
        self,
        q: Float[Array, "h n d"],
        x: Float[Array, "m d"],
        log_w: Float[Array, " m"],
        *,
        second: bool = False,
        causal: bool = False,
    ) -> Tilted:
        return tilt(q, x, log_w, second=second, causal=causal)
