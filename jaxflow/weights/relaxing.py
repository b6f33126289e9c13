"""Tied heads that settle: Ḋ = D̄ − D, the Ornstein–Uhlenbeck equation without its noise:

D(t) = D̄ + e^{−t}(D₀ − D̄),     ∫₀^∞ ‖Ḋ‖ dt = ‖D₀ − D̄‖ < ∞
"""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_same_dtype, check_shape, check_symmetric
from jaxflow._typing import Real
from jaxflow.weights.layer import Layer, make_layer
from jaxflow.weights.schedules import AbstractDeterministic


@final
class Relaxing(AbstractDeterministic):
    """Heads that relax to `mean`: the integrable regime, in which limits of tokens are stationary for the last energy.

    Args:
        initial: D₀, (h, d, d), symmetric.
        mean: D̄, (d, d) or (h, d, d), symmetric.
        A, b, mass: constant feed-forward and head masses, as for `Constant`.

    Raises:
        InputError: see `make_layer`; a mean of another shape, or that is not symmetric.

    Source: arXiv:2605.18870, §5, with σ = 0.
    """

    initial: Layer
    mean: Float[Array, "h d d"]
    edges: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, *, initial: Any, mean: Any, A: Any = None, b: Any = None, mass: Any = None):
        self.initial = make_layer(D=initial, A=A, b=b, mass=mass)
        dtype, (h, d) = self.initial.dtype, (self.initial.heads, self.initial.dim)
        mean = as_float(mean, "mean", dtype)
        check_shape(mean, (d, d) if mean.ndim == 2 else (h, d, d), "mean")
        check_symmetric(mean, "mean", "the heads stay symmetric only around a symmetric mean")
        self.mean = jnp.broadcast_to(mean, (h, d, d))
        check_same_dtype({"initial": self.initial, "mean": self.mean})
        self.edges = ()

    def at(self, t: Real, state: None = None) -> Layer:
        assert self.initial.B is not None
        D = self.mean + jnp.exp(-jnp.asarray(t, self.initial.dtype)) * (self.initial.B - self.mean)
        return eqx.tree_at(lambda layer: (layer.B, layer.V), self.initial, (D, D))

    @property
    def limit(self) -> Layer:
        """The layer with the heads D̄."""
        return eqx.tree_at(lambda layer: (layer.B, layer.V), self.initial, (self.mean, self.mean))

    def piece(self, i: Any) -> "Relaxing":
        return self
