"""Gaussians under any attention whose mean is affine on them, a_h(x) = M_h x + m_h, in factor form Σ = LLᵀ:

μ̇ = Aμ + b + Σ_h c_h V_h (M_h μ + m_h),      L̇ = K L,      K = A + Σ_h c_h V_h M_h

softmax   M = λΣC                                        Σ' = V λΣCΣ + ᵀ                     λ = scale, C = KᵀQ
L2        M = 2λΣ(I + 2λKᵀKΣ)^{-1}C                      Σ' = 2λVΣ(I + 2λKᵀKΣ)^{-1}CΣ + ᵀ
Sinkhorn  M = 2λL(I + (I + 4λ²LᵀCΣCᵀL)^½)^{-1}LᵀC        Σ' = V C^{-ᵀ}Σ^{-1}TΣ + ᵀ           (at λ = 1; T below)

T = ½(Σ^½(4Σ^½CᵀΣCΣ^½ + I)^½Σ^{−½} − I), where C and Σ are invertible.
"""

from typing import Any, final

import jax.numpy as jnp
from jaxtyping import Array

from jaxflow._checks import check_same_dtype
from jaxflow._typing import Real, Scalar
from jaxflow.attention import AbstractPairing
from jaxflow.attention.pairing import check_dim
from jaxflow.gaussian.flow import Terms, time_to_blow_up
from jaxflow.measures import Gaussian
from jaxflow.measures.single import check_single_gaussian
from jaxflow.solve import AbstractFlow
from jaxflow.weights import AbstractSchedule, Layer
from jaxflow.weights.values import check_values


@final
class ClosureFlow(AbstractFlow):
    """Mean and covariance of a Gaussian cloud under softmax, L2 or Sinkhorn attention and affine feed-forward.

    Exact for infinitely many tokens, at any rank: the velocity is affine, so the Gaussian stays one. The same
    `weights` and `attention` move tokens in `particles.PairingFlow`. With `Softmax(Q, K)` this is `MomentFlow` with
    B_h = scale K_hᵀQ_h.

    Args:
        weights: values V_h of mass c_h and feed-forward A, b: `weights.Values`, or a `Function` that makes such layers.
        attention: `attention.Softmax`, `attention.L2` or `attention.Sinkhorn`, with as many heads as V.

    Raises:
        InputError: weights with B, or with values that do not fit the attention.

    Status: `blow_up` where Σ becomes infinite in finite time; never under Sinkhorn attention.

    Cost: O(h d³) per evaluation.

    Source: arXiv:2501.18322 for μ = 0, one head and no feed-forward; the rest derived in tests/README.md.
    """

    weights: AbstractSchedule
    attention: AbstractPairing

    def __check_init__(self) -> None:
        h, _, d = self.attention.Q.shape
        check_values(self.weights.at(0.0), h, d)

    def check(self, state: Any) -> None:
        check_single_gaussian(state)
        check_dim(self.attention, state.dim, "state")
        check_same_dtype({"state": state, "attention": self.attention})

    def split(self, state: Gaussian) -> tuple[tuple[Array, Array], None]:
        return (state.mean, state.factor), None

    def join(self, y: tuple[Array, Array], rest: None) -> Gaussian:
        return Gaussian(*y)

    @property
    def retraction(self) -> None:
        return None

    def field(self, t: Real, state: Gaussian, layer: Layer) -> tuple[tuple[Array, Array], Terms]:
        assert layer.V is not None
        assert layer.mass is not None
        mu, L = state.mean, state.factor
        a = self.attention.affine(state)
        Q = jnp.einsum("h,hij,hjk->ik", layer.mass, layer.V, a.M)
        K = Q if layer.A is None else layer.A + Q
        dmu = K @ mu + jnp.einsum("h,hij,hj->i", layer.mass, layer.V, a.m)
        if layer.b is not None:
            dmu = dmu + layer.b
        return (dmu, K @ L), Terms(Q, K, L @ L.T)

    def time_left(self, state: Gaussian, terms: Terms) -> Scalar | None:
        """`time_to_blow_up` with the power of this attention; None for one that keeps Σ finite."""
        if self.attention.blow_up is None:
            return None
        return time_to_blow_up(terms, power=self.attention.blow_up)
