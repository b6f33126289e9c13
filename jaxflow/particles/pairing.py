"""Tokens in R^d under any rule of attention:  ẋ = A x + b + Σ_h c_h V_h a_h(x)."""

from typing import Any, final

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_same_dtype
from jaxflow._typing import Real
from jaxflow.attention import AbstractPairing
from jaxflow.attention.pairing import check_dim
from jaxflow.measures import Cloud
from jaxflow.measures.single import check_single_cloud
from jaxflow.solve import AbstractFlow
from jaxflow.weights import AbstractSchedule, Layer
from jaxflow.weights.values import check_values


@final
class PairingFlow(AbstractFlow):
    """A cloud of tokens in R^d under softmax, L2 or Sinkhorn attention and affine feed-forward.

    The same `weights` and `attention` move Gaussians in `gaussian.ClosureFlow`; Gauss–Hermite nodes follow it to
    spectral accuracy. With `Softmax(Q, K)` this is `AttentionFlow` in R^d with B_h = scale K_hᵀQ_h.

    Args:
        weights: values V_h of mass c_h and feed-forward A, b: `weights.Values`, or a `Function` that makes such layers.
        attention: `attention.Softmax`, `attention.L2` or `attention.Sinkhorn`, with as many heads as V.

    Raises:
        InputError: weights with B, or with values that do not fit the attention.

    Status: `nonfinite` where Sinkhorn scaling has not converged.

    Cost: O(h n² d) per evaluation, for Sinkhorn O(h n²) per iteration.

    Source: arXiv:2501.18322.
    """

    weights: AbstractSchedule
    attention: AbstractPairing

    def __check_init__(self) -> None:
        h, _, d = self.attention.Q.shape
        check_values(self.weights.at(0.0), h, d)

    def check(self, state: Any) -> None:
        check_single_cloud(state)
        check_dim(self.attention, state.points.shape[1], "state.points")
        check_same_dtype({"state": state, "attention": self.attention})

    def split(self, state: Cloud) -> tuple[Array, Any]:
        return state.points, state.log_weights

    def join(self, y: Array, rest: Any) -> Cloud:
        return Cloud(y, rest)

    @property
    def retraction(self) -> None:
        return None

    def field(self, t: Real, state: Cloud, layer: Layer) -> tuple[Float[Array, "n d"], Float[Array, "h n d"]]:
        assert layer.V is not None
        assert layer.mass is not None
        a = self.attention.means(state)
        u = jnp.einsum("h,hij,hnj->ni", layer.mass, layer.V, a)
        if layer.A is not None:
            u = u + state.points @ layer.A.T
        if layer.b is not None:
            u = u + layer.b[None]
        return u, a

    def time_left(self, state: Cloud, terms: Any) -> None:
        """None: attention stays in the convex hull of the tokens."""
        return
