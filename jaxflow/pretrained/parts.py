"""The parts that trained encoders share: y = W x + b, layer norm, activations, and the two feed-forward layers.

LN(x) = w ∘ (x − mean x)/√(var x + ε) + β        mean and variance over the d coordinates of one token
MLP(x) = W₂ act(W₁ x + b₁) + b₂                  GLU(x) = W₂ (act(W_a x + b_a) ∘ (W_g x + b_g)) + b₂
"""

import abc
from collections.abc import Callable
from typing import Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Real

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}
"""By the names that `config.json` uses."""


@final
class Linear(eqx.Module):
    """y = W x + b for every token.

    Attributes:
        weight: W, (out, in).
        bias: b, (out,); None stands for zero.
    """

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"] | None

    def __call__(self, x: Float[Array, "n in"]) -> Float[Array, "n out"]:
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias[None]


@final
class LayerNorm(eqx.Module):
    """LN(x) = w ∘ (x − mean x)/√(var x + ε) + β.

    Attributes:
        weight: w, (d,).
        bias: β, (d,); None stands for zero.
        eps: ε, as the config has it.
    """

    weight: Float[Array, " d"]
    bias: Float[Array, " d"] | None
    eps: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        y = self.weight[None] * (centred * jax.lax.rsqrt(variance + self.eps))
        return y if self.bias is None else y + self.bias[None]

    def affine(self, variance: Real) -> tuple[Float[Array, "d d"], Float[Array, " d"]]:
        """(M, c) with LN(x) = M x + c for tokens whose coordinates have this variance.

        M = diag(w)(I − 11ᵀ/d)/√(var + ε), c = β.
        """
        d = self.weight.shape[0]
        M = (self.weight[:, None] * (jnp.eye(d, dtype=self.weight.dtype) - 1 / d)) / jnp.sqrt(variance + self.eps)
        return M, jnp.zeros_like(self.weight) if self.bias is None else self.bias


class AbstractFeedforward(eqx.Module):
    """What a block does to every token by itself."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The same map of every token."""


@final
class MLP(AbstractFeedforward):
    """W₂ act(W₁ x + b₁) + b₂."""

    first: Linear
    second: Linear
    act: str = eqx.field(static=True)

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return self.second(ACTIVATIONS[self.act](self.first(x)))


@final
class GLU(AbstractFeedforward):
    """W₂ (act(u) ∘ g) + b₂ with (u, g) = W₁ x + b₁: of the two halves the *first* is activated."""

    first: Linear
    second: Linear
    act: str = eqx.field(static=True)

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        u, g = jnp.split(self.first(x), 2, axis=-1)
        return self.second(ACTIVATIONS[self.act](u) * g)
