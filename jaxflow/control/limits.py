"""Controls that cannot leave a ball: u = y/√(1 + |y|²/r²), |u| < r for every y, and du/dy invertible.

The search moves y freely; every method keeps the bound without knowing of it. Near y = 0 nothing changes, and where
|y| ≫ r the control has the direction of y and almost the length r. |·| is the Frobenius norm, over all heads together.
"""

from collections.abc import Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxflow._typing import Scalar
from jaxflow.errors import InputError
from jaxflow.weights import AbstractSchedule, Layer

Bounds = tuple[tuple[str, float], ...]
"""(name, r) of every bounded control, in the order of their names."""

INSIDE = 0.9
"""A control beyond its bound is brought back to this part of it before y is asked for."""


def check_bounds(bounds: Mapping[str, Any], allow: str) -> Bounds:
    """The bounds as a static value.

    Raises:
        InputError: a control that is not allowed, or a bound that is not a positive number.
    """
    for name, r in bounds.items():
        if name not in allow:
            raise InputError(
                "bounds a control that is not free",
                where=f"bounds.{name}",
                got=f"allow = {allow!r}",
                fix=f"allow {name}, or remove its bound" if name in tuple("ABVb") else "the controls are A, B, V, b",
            )
        if not (np.isfinite(r) and r > 0):
            raise InputError("must be positive", where=f"bounds.{name}", got=r, expected="a finite number > 0")
    return tuple((name, float(bounds[name])) for name in sorted(bounds))


def into_ball(y: Array, r: float, *, lead: int = 0) -> Array:
    """y/√(1 + |y|²/r²), with norms over all axes but the first `lead`."""
    return y / jnp.sqrt(1 + _square(y, lead) / r**2)


def out_of_ball(u: Array, r: float, *, lead: int = 0) -> Array:
    """The y that `into_ball` maps to u; where |u| is above 0.9 r, that of u shortened to this length."""
    square = _square(u, lead)
    allowed = (INSIDE * r) ** 2
    u = u * jnp.where(square > allowed, jnp.sqrt(allowed / jnp.where(square > 0, square, 1)), 1)
    return u / jnp.sqrt(1 - jnp.minimum(square, allowed) / r**2)


def _square(x: Array, lead: int) -> Array:
    return jnp.sum(x**2, axis=tuple(range(lead, x.ndim)), keepdims=True)


@final
class Bounded(eqx.Module):
    """t ↦ the layer of a schedule, its controls brought into their balls at every time."""

    schedule: AbstractSchedule
    bounds: Bounds = eqx.field(static=True)

    def __call__(self, t: Array) -> Layer:
        layer = self.schedule.at(t)
        for name, r in self.bounds:
            inside = into_ball(getattr(layer, name), r)
            layer = eqx.tree_at(lambda layer, name=name: getattr(layer, name), layer, inside)
        return layer


@final
class Faster(eqx.Module):
    """t ↦ the layer that moves everything `factor` times as fast as the given one: A, V and b times it, B as it is."""

    function: Any
    factor: Scalar

    def __call__(self, t: Array) -> Layer:
        return faster(self.function(t), self.factor)


def faster(layer: Layer, factor: Scalar) -> Layer:
    """The layer with `factor` times its velocity; B only says what tokens look at."""
    found = {name: x for name in ("A", "V", "b") if (x := getattr(layer, name)) is not None}
    moved = tuple(factor * x for x in found.values())
    return eqx.tree_at(lambda layer: tuple(getattr(layer, name) for name in found), layer, moved)


def reached(weights: AbstractSchedule, bounds: Bounds, times: np.ndarray) -> Scalar:
    """The largest |u(t)|/r at these times over the bounded controls; 0 without bounds."""
    if not bounds:
        return jnp.asarray(0.0)
    layers = jax.vmap(weights.at)(jnp.asarray(times, weights.at(0.0).dtype))
    parts = [jnp.max(jnp.sqrt(_square(getattr(layers, name), 1))) / r for name, r in bounds]
    return jnp.max(jnp.stack(parts))
