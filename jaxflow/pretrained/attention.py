"""Multi-head self-attention as trained transformers write it:

    q = W_Q x + b_Q,  k = W_K x + b_K,  v = W_V x + b_V      split into h heads of k = d/h coordinates
    p_ij = softmax_j(⟨R_i q_i, R_j k_j⟩/√k),                 y_i = W_O (Σ_j p_ij v_j)_heads + b_O

R_i turns coordinates c and c + k/2 by the angle i θ^{−2c/k} (rotary positions; absent: R = I). A window w leaves out
the keys with |i − j| > w.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxflow.pretrained.parts import Linear


class AbstractAttention(eqx.Module):
    """What a block lets tokens do to one another."""

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        raise NotImplementedError

    @property
    def exchangeable(self) -> bool:
        """Whether the order of the tokens does not matter."""
        raise NotImplementedError


@final
class SelfAttention(AbstractAttention):
    """The attention of a trained block.

    Attributes:
        query, key, value, output: W_Q, W_K, W_V, W_O with their biases, (d, d).
        heads: h.
        theta: of rotary positions; None: no positions here, and tokens may be permuted.
        window: w, both ends included; None: every token sees every other.

    Cost: O(n d² + n² d) time, O(h n²) memory.
    """

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    heads: int = eqx.field(static=True)
    theta: float | None = eqx.field(static=True, default=None)
    window: int | None = eqx.field(static=True, default=None)

    @property
    def exchangeable(self) -> bool:
        return self.theta is None and self.window is None

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        n = x.shape[0]
        q, k, v = (linear(x).reshape(n, self.heads, -1) for linear in (self.query, self.key, self.value))
        if self.theta is not None:
            q, k = rotate(q, self.theta), rotate(k, self.theta)
        logits = jnp.einsum("ihk,jhk->hij", q / np.sqrt(q.shape[-1]).astype(q.dtype), k)
        if self.window is not None:
            logits = jnp.where(within(n, self.window)[None], logits, -jnp.inf)
        y = jnp.einsum("hij,jhk->ihk", jax.nn.softmax(logits, axis=-1), v)
        return self.output(y.reshape(n, -1))


def within(n: int, window: int) -> Bool[Array, "n n"]:
    """|i − j| ≤ w."""
    i = jnp.arange(n)
    return jnp.abs(i[:, None] - i[None]) <= window


def rotate(x: Float[Array, "n h k"], theta: float) -> Float[Array, "n h k"]:
    """R_i x_i: (x_c, x_{c+k/2}) turned by i θ^{−2c/k}. Angles are computed in float64, whatever the precision of x."""
    n, _, k = x.shape
    angle = np.arange(n)[:, None] * theta ** (-np.arange(0, k, 2) / k)
    cos, sin = (jnp.asarray(f(angle), x.dtype)[:, None] for f in (np.cos, np.sin))
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
