"""How tokens are paired: the attention means a_h(x) of a measure under queries Q_h x and keys K_h y.

Every rule has two faces. On a cloud it sums over tokens; on a Gaussian N(μ, Σ) its mean is exactly affine,

    a_h(x) = M_h x + m_h,

so that the Gaussian stays one under ẋ = Ax + b + Σ_h c_h V_h a_h(x), whatever A, b and V are.
"""

import abc
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import as_float, check_same_dtype, check_shape
from jaxflow._typing import Scalar
from jaxflow.errors import InputError
from jaxflow.measures import Cloud, Gaussian


@final
class Affine(eqx.Module):
    """The maps a_h(x) = M_h x + m_h.

    Attributes:
        M: (h, d, d).
        m: (h, d).
    """

    M: Float[Array, "h d d"]
    m: Float[Array, "h d"]


class AbstractPairing(eqx.Module):
    """A rule that turns queries and keys into attention means. `scale` multiplies the logits as a whole."""

    Q: eqx.AbstractVar[Float[Array, "h k d"]]
    K: eqx.AbstractVar[Float[Array, "h k d"]]
    scale: eqx.AbstractVar[Scalar]

    blow_up: ClassVar[int | None]
    """The p with which Σ may become infinite like (t* − t)^{−p} under this rule; None where it cannot."""

    @abc.abstractmethod
    def means(self, cloud: Cloud) -> Float[Array, "h n d"]:
        """a_h(x_i), what the tokens of this cloud see of one another."""

    @abc.abstractmethod
    def affine(self, gaussian: Gaussian) -> Affine:
        """The same for N(μ, Σ), of any rank."""


def check_pairing(Q: Any, K: Any, scale: Any) -> tuple[Array, Array, Array]:
    """Q, K as (h, k, d) and the scale, or InputError. Without a head axis, (k, d) means one head."""
    Q, K = as_float(Q, "Q"), as_float(K, "K")
    if Q.ndim == 2:
        Q = Q[None]
    if K.ndim == 2:
        K = K[None]
    scale = as_float(scale, "scale", Q.dtype)
    check_shape(Q, ("h", "k", "d"), "Q")
    check_shape(K, Q.shape, "K")
    check_shape(scale, (), "scale")
    # A Python number has no precision of its own.
    scale = scale.astype(Q.dtype) if scale.weak_type else scale
    check_same_dtype({"Q": Q, "K": K, "scale": scale})
    return Q, K, scale


def check_dim(pairing: AbstractPairing, d: int, where: str) -> None:
    """Heads and what they act on must live in one dimension."""
    if pairing.Q.shape[-1] != d:
        raise InputError(
            "lives in another dimension than the attention",
            where=where,
            got=d,
            expected=f"d = {pairing.Q.shape[-1]}",
        )


def queries(pairing: AbstractPairing, x: Float[Array, "n d"]) -> Float[Array, "h n d"]:
    """scale · K_hᵀQ_h x, so that ⟨query, y⟩ = scale ⟨Q_h x, K_h y⟩."""
    return pairing.scale * jnp.einsum("hki,hkj,nj->hni", pairing.K, pairing.Q, x)
