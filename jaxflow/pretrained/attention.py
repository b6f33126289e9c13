"""Multi-head self-attention as trained transformers write it:

    q = W_Q x + b_Q,  k = W_K x + b_K,  v = W_V x + b_V      split into h heads of k = d/h coordinates
    p_ij = softmax_j(⟨R_i q_i, R_j k_j⟩/√k),                 y_i = W_O (Σ_j p_ij v_j)_heads + b_O

R_i turns coordinates c and c + k/2 by the angle i θ^{−2c/k} (rotary positions; absent: R = I). A window w leaves out
the keys with |i − j| > w.
"""

import abc
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxflow.errors import InputError
from jaxflow.pretrained.parts import Linear


@final
class Heads(eqx.Module):
    """Attention as in (1.1): y_i = Σ_h V_h a_h(x_i) + o, a_h(x) the mean of the x_j weighted by e^{⟨B_h x + t_h, x_j⟩}.

    Attributes:
        B, V: (h, d, d).
        tilt: t, (h, d).
        constant: o, (d,).
    """

    B: Float[Array, "h d d"]
    V: Float[Array, "h d d"]
    tilt: Float[Array, "h d"]
    constant: Float[Array, " d"]


class AbstractAttention(eqx.Module):
    """What a block lets tokens do to one another."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """y_i for every token."""

    @property
    @abc.abstractmethod
    def exchangeable(self) -> bool:
        """Whether the order of the tokens does not matter."""

    @abc.abstractmethod
    def heads_at(self, M: Float[Array, "d d"], c: Float[Array, " d"]) -> Heads:
        """Its heads, where it sees M x + c in place of x; exact for any tokens. Refused unless it is exchangeable."""


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

    def heads_at(self, M: Float[Array, "d d"], c: Float[Array, " d"]) -> Heads:
        if not self.exchangeable:
            raise InputError(
                "has no B that is the same for all tokens",
                where="block.attention",
                got="attention that depends on positions",
                expected="self-attention without rotary positions and windows",
            )
        (Q, q), (K, _), (W, w) = (_by_heads(linear, M, c, self.heads) for linear in (self.query, self.key, self.value))
        O = self.output.weight.reshape(len(c), self.heads, -1)
        root = np.sqrt(K.shape[1])
        return Heads(
            jnp.einsum("hkj,hki->hji", K, Q) / root,
            jnp.einsum("ihk,hkj->hij", O, W),
            jnp.einsum("hkj,hk->hj", K, q) / root,
            jnp.einsum("ihk,hk->i", O, w) + (0 if self.output.bias is None else self.output.bias),
        )


def _by_heads(linear: Linear, M: Array, c: Array, heads: int) -> tuple[Array, Array]:
    """(h, k, d) and (h, k): y = W(M x + c) + b, by heads."""
    d = M.shape[0]
    bias = jnp.zeros(d, M.dtype) if linear.bias is None else linear.bias
    return (linear.weight @ M).reshape(heads, -1, d), (linear.weight @ c + bias).reshape(heads, -1)


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
