"""Tied heads near others, as weight decay and small changes make them:  D^ε_h(t) = (1 − δ) D_h(t) + S_h."""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_shape, check_symmetric
from jaxflow._typing import Real
from jaxflow.errors import InputError
from jaxflow.weights.layer import Layer
from jaxflow.weights.schedules import AbstractDeterministic, AbstractSchedule


@final
class Perturbed(AbstractDeterministic):
    """The heads of another schedule, shrunk and shifted; the rest of its layers unchanged.

    Args:
        weights: tied heads D_h(t), any schedule that is not random.
        shift: S, (h, d, d) or (d, d) for all heads, symmetric; None: no shift.
        decay: δ, a number; 0: none.

    Raises:
        InputError: free, random or no heads; a shift of another shape, or that is not symmetric.
    """

    weights: AbstractSchedule
    shift: Float[Array, "h d d"]
    decay: Float[Array, ""]
    edges: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, weights: AbstractSchedule, *, shift: Any = None, decay: Any = 0.0):
        layer = weights.at(0.0)
        if layer.B is None or not layer.tied:
            raise InputError(
                "have no tied heads to perturb",
                where="weights",
                got="free heads B, V" if layer.B is not None else "a layer without attention",
                expected="symmetric D, (h, d, d)",
            )
        if weights.random:
            raise InputError(
                "are random, and would be drawn anew",
                where="weights",
                got=type(weights).__name__,
                fix="draw one path first: weights.sample(key, ts)",
            )
        shape = layer.B.shape
        S = jnp.zeros(shape, layer.dtype) if shift is None else as_float(shift, "shift", layer.dtype)
        check_shape(S, shape if S.ndim == 3 else shape[1:], "shift")
        check_symmetric(S, "shift", "tied heads stay symmetric only under a symmetric shift")
        self.weights, self.shift = weights, jnp.broadcast_to(S, shape)
        self.decay = jnp.asarray(decay, layer.dtype)
        self.edges = weights.edges

    def at(self, t: Real, state: None = None) -> Layer:
        return self._changed(self.weights.at(t))

    def piece(self, i: Any) -> "Perturbed":
        return Perturbed(self.weights.piece(i), shift=self.shift, decay=self.decay)

    def _changed(self, layer: Layer) -> Layer:
        assert layer.B is not None
        D = (1 - self.decay) * layer.B + self.shift
        return eqx.tree_at(lambda layer: (layer.B, layer.V), layer, (D, D))
