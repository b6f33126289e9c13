"""Layers whose attention has queries and keys of its own: values V_h of mass c_h, and feed-forward (A, b)."""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp

from jaxflow._checks import as_float, check_same_dtype, check_shape
from jaxflow.errors import InputError
from jaxflow.weights.layer import Layer
from jaxflow.weights.schedules import AbstractDeterministic


def make_values(*, V: Any, A: Any = None, b: Any = None, mass: Any = None) -> Layer:
    """A checked Layer without B, for flows that take an attention rule (`attention.Softmax`, `L2`, `Sinkhorn`).

    Args:
        V: (h, d, d), or (d, d) for one head.
        A, b: (d, d) and (d,); None stands for zero.
        mass: c_h, (h,); default 1, so that the layer sums over heads.

    Raises:
        InputError: shapes disagree or precisions mix.
    """
    parts = {"V": V, "A": A, "b": b, "mass": mass}
    given = {name: as_float(x, name) for name, x in parts.items() if x is not None}
    check_same_dtype(given)
    if given["V"].ndim == 2:
        given["V"] = given["V"][None]
    h, d = given["V"].shape[0], given["V"].shape[-1]
    given.setdefault("mass", jnp.ones(h, given["V"].dtype))
    shapes = {"V": (h, d, d), "A": (d, d), "b": (d,), "mass": (h,)}
    for name, x in given.items():
        check_shape(x, shapes[name], name)
    return Layer(V=given["V"], A=given.get("A"), b=given.get("b"), mass=given["mass"])


@final
class Values(AbstractDeterministic):
    """The same values and feed-forward at every depth. Arguments and errors as for `make_values`.

    For values that change with depth: `jf.weights.Function(lambda t: jf.weights.make_values(V=..., A=...))`.
    """

    layer: Layer
    edges: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, *, V: Any, A: Any = None, b: Any = None, mass: Any = None) -> None:
        self.layer = make_values(V=V, A=A, b=b, mass=mass)
        self.edges = ()

    def at(self, t: Any, state: None = None) -> Layer:
        return self.layer

    def piece(self, i: Any) -> "Values":
        return self


def check_values(layer: Layer, heads: int, d: int) -> None:
    """The layer must give values for so many heads in R^d, and leave queries and keys to the attention."""
    if layer.V is None or layer.B is not None:
        raise InputError(
            "must give values V and no B: the attention has its own queries and keys",
            where="weights",
            got="B and V" if layer.B is not None else "no V",
            fix="jf.weights.Values(V=..., A=..., b=...)",
        )
    if layer.V.shape != (heads, d, d):
        raise InputError(
            "does not fit the attention",
            where="weights.V",
            got=layer.V.shape,
            expected=f"({heads}, {d}, {d}): one matrix for each head of Q and K",
        )
