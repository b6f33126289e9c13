"""The matrices of one layer as the moment equations use them: A, b, c_hV_h (with the sign of a tied head) and B_h."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxflow._checks import is_concrete
from jaxflow.errors import InputError
from jaxflow.linalg import symmetrize
from jaxflow.measures import Gaussian
from jaxflow.weights import Layer
from jaxflow.weights.layer import Direction, check_direction, sign_of


class Parts(NamedTuple):
    """A (d, d), b (d,), cV = c_hV_h (h, d, d) and B (h, d, d), with zeros (and no heads) for what the layer lacks."""

    A: Float[Array, "d d"]
    b: Float[Array, " d"]
    cV: Float[Array, "h d d"]
    B: Float[Array, "h d d"]


def parts_of(layer: Layer, direction: Direction | None = None) -> Parts:
    """The Parts of a layer.

    Raises:
        InputError: tied heads without a direction, or a direction for free heads.
    """
    check_direction(layer, direction)
    d, dtype = layer.dim, layer.dtype
    none = jnp.zeros((0, d, d), dtype)
    A = jnp.zeros((d, d), dtype) if layer.A is None else layer.A
    b = jnp.zeros(d, dtype) if layer.b is None else layer.b
    if layer.B is None or layer.V is None or layer.mass is None:
        return Parts(A, b, none, none)
    return Parts(A, b, sign_of(direction) * layer.mass[:, None, None] * layer.V, layer.B)


class HostParts(NamedTuple):
    """The Parts as NumPy arrays, for what looks at their values."""

    A: np.ndarray
    b: np.ndarray
    cV: np.ndarray
    B: np.ndarray


def host_parts(layer: Layer, direction: Direction | None = None) -> HostParts:
    """The Parts of a layer whose values can be seen."""
    return HostParts(*(np.asarray(x) for x in parts_of(layer, direction)))


def slope(parts: Parts, Sigma: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """K = A + Σ_h c_hV_hΣB_h."""
    return parts.A + jnp.einsum("hij,jk,hkl->il", parts.cV, Sigma, parts.B)


def reach(parts: HostParts) -> float:
    """γ = Σ_h ‖c_hV_h‖‖B_h‖: attention changes tr Σ at a rate of at most 2γ λmax(Σ). Host only."""
    return float(sum(np.linalg.norm(V, 2) * np.linalg.norm(B, 2) for V, B in zip(parts.cV, parts.B)))


def check_fits(layer: Layer, start: Gaussian) -> None:
    """Refuse a Gaussian of another dimension, or a batch of them."""
    if start.mean.shape != (layer.dim,):
        raise InputError(
            "does not fit the layer",
            where="start.mean",
            got=start.mean.shape,
            expected=f"({layer.dim},)",
            fix="one Gaussian of the layer's dimension; use jax.vmap for several",
        )


def has_scalar_values(parts: Parts | HostParts) -> bool:
    """Whether every c_hV_h is a multiple of the identity, so that Σ obeys a matrix Riccati equation. Host only."""
    cV = np.asarray(parts.cV)
    eye = np.eye(cV.shape[-1])
    v = cV[:, 0, 0][:, None, None]
    return bool((np.abs(cV - v * eye) <= 1e-14 * np.abs(cV).max(initial=0.0)).all())


def quadratic_part(parts: Parts | HostParts) -> Float[Array, "d d"]:
    """G = Σ_h c_hv_h sym(B_h) for V_h = v_hI: then Σ̇ = AΣ + ΣAᵀ + 2ΣGΣ.

    Raises:
        InputError: some V_h is no multiple of the identity (where its values can be seen).
    """
    if is_concrete(parts.cV) and not has_scalar_values(parts):
        raise InputError(
            "is not a multiple of the identity",
            where="layer.V",
            expected="V_h = v_h I for every head: only then is the equation for Σ a matrix Riccati equation",
            fix="use jf.solve with gaussian.MomentFlow, or gaussian.equilibrium, which take any V",
        )
    cV, B = jnp.asarray(parts.cV), jnp.asarray(parts.B)
    v = jnp.trace(cV, axis1=1, axis2=2) / cV.shape[-1]
    return symmetrize(jnp.einsum("h,hij->ij", v, B))
