"""L2 attention: weights ∝ w_j e^{−scale |Qx − Ky_j|²}.  On N(μ, Σ), λ = scale:

a(x) = (Σ^{-1} + 2λKᵀK)^{-1} (Σ^{-1}μ + 2λKᵀQx) = μ + 2λ L (I + 2λLᵀKᵀKL)^{-1} LᵀKᵀ (Qx − Kμ),   Σ = LLᵀ
"""

from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_positive
from jaxflow._typing import Scalar
from jaxflow.attention.base import AbstractKernel
from jaxflow.attention.chunked import Chunked
from jaxflow.attention.pairing import AbstractPairing, Affine, check_pairing, queries
from jaxflow.measures import Cloud, Gaussian


@final
class L2(AbstractPairing):
    """Attention by distance between query and key: softmax attention whose tokens weigh w_j e^{−scale |Ky_j|²}.

    The second form above needs no inverse of Σ and holds for every rank. While K has rank d, |a| grows at most
    linearly with the cloud and Σ stays finite for all time; with fewer keys than dimensions it can become infinite.

    Args:
        Q, K: (h, k, d), or (k, d) for one head.
        scale: multiplies the squared distance; positive.
        kernel: how the sums over pairs are done.

    Raises:
        InputError: shapes or precisions disagree; a scale that is not positive.

    Cost: O(h n² d) time on a cloud, h times the memory of the kernel for one head; O(h d² (k + r)) on a Gaussian.
    The distance is expanded, so logits carry a rounding error of ε·scale·|Ky|²: centre clouds far from the origin.

    Source: arXiv:2501.18322 without a mean; the mean derived in tests/README.md.
    """

    Q: Float[Array, "h k d"]
    K: Float[Array, "h k d"]
    scale: Scalar
    kernel: AbstractKernel

    blow_up = 2

    def __init__(self, Q: Any, K: Any, scale: Any = 1.0, *, kernel: AbstractKernel | None = None) -> None:
        self.Q, self.K, self.scale = check_pairing(Q, K, scale)
        check_positive(self.scale, "scale", "far tokens must weigh less than near ones")
        self.kernel = Chunked() if kernel is None else kernel

    def means(self, cloud: Cloud) -> Float[Array, "h n d"]:
        x = cloud.points
        keys = jnp.einsum("hkd,nd->hnk", self.K, x)
        log_w = cloud.log_w[None] - self.scale * jnp.sum(keys * keys, -1)

        def head(q: Array, log_w: Array) -> Array:
            return self.kernel(q[None], x, log_w).mean[0]

        return jax.vmap(head)(2 * queries(self, x), log_w)

    def affine(self, gaussian: Gaussian) -> Affine:
        mu, L = gaussian.mean, gaussian.factor
        KL = self.K @ L
        S = jnp.eye(L.shape[1], dtype=L.dtype)[None] + 2 * self.scale * jnp.einsum("hkr,hks->hrs", KL, KL)
        G = 2 * self.scale * L[None] @ jnp.linalg.solve(S, jnp.swapaxes(KL, 1, 2))
        return Affine(G @ self.Q, mu[None] - jnp.einsum("hdk,hke,e->hd", G, self.K, mu))
