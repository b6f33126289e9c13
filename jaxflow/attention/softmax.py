"""Softmax attention: weights ∝ w_j e^{scale ⟨Qx, Ky_j⟩}.  On N(μ, Σ):  a(x) = μ + scale ΣCx,  C = KᵀQ."""

from typing import Any, final

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Scalar
from jaxflow.attention.base import AbstractKernel
from jaxflow.attention.chunked import Chunked
from jaxflow.attention.pairing import AbstractPairing, Affine, check_pairing
from jaxflow.measures import Cloud, Gaussian


@final
class Softmax(AbstractPairing):
    """The transformer's attention, by its query and key matrices.

    The same as heads B_h = scale K_hᵀQ_h of a layer; a bounded number of keys k < d gives B a low rank.

    Args:
        Q, K: (h, k, d), or (k, d) for one head.
        scale: multiplies the logits; 1/√k in most transformers, 1 here.
        kernel: how the sums over pairs are done.

    Cost: O(h n² d) time on a cloud, memory of the kernel; O(h d³) on a Gaussian.

    Source: Castin, Ablin, Carrillo, Peyré, arXiv:2501.18322; with a mean arXiv:2606.07600 (1.1).
    """

    Q: Float[Array, "h k d"]
    K: Float[Array, "h k d"]
    scale: Scalar
    kernel: AbstractKernel

    blow_up = 1

    def __init__(self, Q: Any, K: Any, scale: Any = 1.0, *, kernel: AbstractKernel | None = None) -> None:
        self.Q, self.K, self.scale = check_pairing(Q, K, scale)
        self.kernel = Chunked() if kernel is None else kernel

    def means(self, cloud: Cloud) -> Float[Array, "h n d"]:
        B = self.scale * jnp.einsum("hki,hkj->hij", self.K, self.Q)
        return self.kernel.free(B, cloud.points, cloud.log_w).mean

    def affine(self, gaussian: Gaussian) -> Affine:
        KL = self.K @ gaussian.factor
        M = self.scale * jnp.einsum("dr,hkr,hke->hde", gaussian.factor, KL, self.Q)
        return Affine(M, jnp.broadcast_to(gaussian.mean[None], M.shape[:2]))
