"""One layer: heads (B_h, V_h) of mass c_h and an affine feed-forward part (A, b).

ẋ = A x + b + Σ_h c_h V_h a_h(x),      a_h(x) = Σ_j w_j e^{⟨B_h x, x_j⟩} x_j / Σ_j w_j e^{⟨B_h x, x_j⟩}
"""

from typing import Any, Literal, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_same_dtype, check_shape, check_symmetric
from jaxflow.errors import InputError


@final
class Layer(eqx.Module):
    """The weights of a transformer at one depth; the same object drives tokens and Gaussians.

    Attributes:
        B: query-key matrices, (h, d, d), or None for a layer without attention, or whose attention comes with the
            flow (see `Values`).
        V: value matrices, (h, d, d). For tied heads V = D, and the flow's direction supplies the sign.
        A, b: feed-forward matrix (d, d) and bias (d,); None stands for zero.
        mass: c_h, (h,). The attention part is Σ_h c_h V_h a_h.
        tied: whether B_h = V_h = D_h symmetric, the family of arXiv:2605.18870 (V_h = ∓D_h by direction).
    """

    B: Float[Array, "*t h d d"] | None = None
    V: Float[Array, "*t h d d"] | None = None
    A: Float[Array, "*t d d"] | None = None
    b: Float[Array, "*t d"] | None = None
    mass: Float[Array, "*t h"] | None = None
    tied: bool = eqx.field(static=True, default=False)

    @property
    def dim(self) -> int:
        """d."""
        return next(x for x in (self.B, self.A, self.b, self.V) if x is not None).shape[-1]

    @property
    def dtype(self) -> Any:
        """The floating type of the weights."""
        return next(x for x in (self.B, self.A, self.b, self.V) if x is not None).dtype

    @property
    def heads(self) -> int:
        """h; zero for a layer without attention."""
        return 0 if self.B is None else self.B.shape[-3]


def make_layer(
    *, D: Any = None, B: Any = None, V: Any = None, A: Any = None, b: Any = None, mass: Any = None, lead: int = 0
) -> Layer:
    """A checked Layer from matrices. `lead` counts the leading axes that all of them share (segments, times).

    Heads may come without a head axis ((d, d) means one head). Tied heads D get mass 1/h each, so that the layer
    averages over heads; free heads B, V get mass 1 each, so that it sums over them.

    Raises:
        InputError: shapes disagree, precisions mix, D is not symmetric, V without B, or nothing was given.
    """
    parts = {"D": D, "B": B, "V": V, "A": A, "b": b, "mass": mass}
    given = {name: as_float(x, name) for name, x in parts.items() if x is not None}
    if not given.keys() & {"D", "B", "A", "b"}:
        raise InputError("describe no layer", where="weights", expected="heads (D, or B and V) or a feed-forward A, b")
    if "D" in given and given.keys() & {"B", "V"}:
        raise InputError(
            "gives tied and free heads at once",
            where="weights",
            got=", ".join(given),
            fix="give D (then B = D, V = ∓D), or give B and V",
        )
    if ("B" in given) != ("V" in given):
        raise InputError("gives only one of B and V", where="weights", got=", ".join(given), expected="both or none")
    check_same_dtype(given)
    for name in given.keys() & {"D", "B", "V"}:
        if given[name].ndim == lead + 2:
            given[name] = jnp.expand_dims(given[name], lead)
    reference = next(given[name] for name in ("D", "B", "A", "b") if name in given)
    d = reference.shape[-1]
    shapes = {"D": ("h", d, d), "B": ("h", d, d), "V": ("h", d, d), "A": (d, d), "b": (d,), "mass": ("h",)}
    heads = given.get("D", given.get("B"))
    for name, x in given.items():
        shape = tuple(heads.shape[lead] if s == "h" and heads is not None else s for s in shapes[name])
        check_shape(x, (*reference.shape[:lead], *shape), name)
    tied = "D" in given
    if tied:
        check_symmetric(given["D"], "D", "a tied head has one symmetric matrix; give B and V for general heads")
        given["B"] = given["V"] = given.pop("D")
    if heads is not None:
        h = heads.shape[lead]
        mass = given.get("mass", jnp.ones(h, heads.dtype) / (h if tied else 1))
        given["mass"] = jnp.broadcast_to(mass, heads.shape[: lead + 1])
    return Layer(**given, tied=tied)


Direction = Literal["descend", "ascend"]


def check_direction(layer: Layer, direction: str | None) -> None:
    """Tied heads need a direction, free heads have none."""
    if layer.tied and direction not in ("descend", "ascend"):
        raise InputError(
            "is needed for tied heads",
            where="direction",
            got=direction,
            expected='"descend" (V = −D, tokens repel when D = I) or "ascend" (V = D, they cluster)',
        )
    if not layer.tied and direction is not None:
        raise InputError(
            "does not apply to free heads: V itself says where tokens go",
            where="direction",
            got=direction,
            fix="leave it out, or give tied heads D",
        )


def sign_of(direction: str | None) -> float:
    """The factor in front of V: −1 for "descend", else 1."""
    return -1.0 if direction == "descend" else 1.0
