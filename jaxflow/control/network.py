"""Controls that are a small network of time, linear in its last layer: u(t) = C φ(t)."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow.control.curves import AbstractCurve, Parts, bounded, least_squares
from jaxflow.control.limits import Bounds
from jaxflow.weights import AbstractSchedule, Function, Layer, make_layer


@final
class Network(AbstractCurve):
    """A small network of time: u(t) = C φ(t), φ = (tanh(W_l … tanh(W₁x + w₁) … + w_l), 1), x = 2t/t₁ − 1.

    Attributes:
        width, depth: neurons of a hidden layer, and how many such layers.
        seed: of the first W and w.
    """

    width: int = eqx.field(static=True, default=16)
    depth: int = eqx.field(static=True, default=2)
    seed: int = eqx.field(static=True, default=0)

    @property
    def steps(self) -> int:
        return 40

    @property
    def size(self) -> int:
        return self.width + 1

    def nodes(self) -> np.ndarray:
        return (np.arange(4 * self.size) + 0.5) / (4 * self.size)

    def fit(self, values: Array, extra: Any) -> Array:
        return least_squares(lambda s: features(extra, s), self.nodes(), values)

    def level(self, value: Array) -> Array:
        return jnp.zeros((self.size, *value.shape), value.dtype).at[-1].set(value)

    def begin(self, dtype: Any) -> Any:
        keys = jax.random.split(jax.random.key(self.seed), (self.depth, 2))
        ins = [1] + [self.width] * (self.depth - 1)
        # Slopes of a few units: neurons that bend within [−1, 1], and at different places.
        scales = [3.0] + [2.0 / np.sqrt(self.width)] * (self.depth - 1)
        return [
            {
                "W": jnp.asarray(scale, dtype) * jax.random.normal(key[0], (self.width, n), dtype),
                "w": jax.random.uniform(key[1], (self.width,), dtype, -1.5, 1.5),
            }
            for key, n, scale in zip(keys, ins, scales)
        ]

    def schedule(self, parts: Parts, extra: Any, *, bounds: Bounds, t1: float) -> AbstractSchedule:
        layers = make_layer(**parts, lead=1)
        if layers.mass is not None:
            layers = eqx.tree_at(lambda layer: layer.mass, layers, self.level(layers.mass[0]))
        return bounded(Function(function=NetworkLayers(extra, layers, t1), edges=(0.0, t1)), bounds, t1)


def features(hidden: Any, s: Any) -> Float[Array, " n"]:
    """φ at the part s of the horizon."""
    x = (2 * jnp.asarray(s, hidden[0]["W"].dtype) - 1)[None]
    for layer in hidden:
        x = jnp.tanh(layer["W"] @ x + layer["w"])
    return jnp.concatenate([x, jnp.ones(1, x.dtype)])


@final
class NetworkLayers(eqx.Module):
    """t ↦ Σ_j φ_j(t) c_j."""

    hidden: Any
    layers: Layer
    t1: float = eqx.field(static=True)

    def __call__(self, t: Array) -> Layer:
        basis = features(self.hidden, t / self.t1)
        return jax.tree.map(lambda c: jnp.tensordot(basis, c, 1), self.layers)
