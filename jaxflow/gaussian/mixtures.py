"""Softmax attention of a mixture Σ_k p_k N(μ_k, Σ_k): tilting moves each component and reweighs them,

a(x) = Σ_k ω_k(x) (μ_k + Σ_k q),      ω_k(x) ∝ p_k e^{⟨q, μ_k⟩ + ½⟨q, Σ_k q⟩},      q = Bx

For one component this is affine, and the Gaussian stays one. For several the ω_k depend on x: no component is moved
by an affine map, and mixtures of Gaussians are not invariant.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_shape
from jaxflow.measures import Gaussian


def mixture_attention(
    components: Gaussian, p: Float[Array, " k"], B: Float[Array, "d d"], x: Float[Array, "n d"]
) -> Float[Array, "n d"]:
    """a(x) at n points, exactly.

    Args:
        components: k Gaussians in one object, mean (k, d) and factor (k, d, r).
        p: their weights, positive, of any sum.
        B: the query-key matrix of one head.
        x: points, of the mixture or not.

    Raises:
        InputError: a single Gaussian instead of k of them.

    Cost: O(n k d r).

    Source: derived in tests/README.md; at k = 1 arXiv:2606.07600 (1.1).
    """
    check_shape(components.mean, ("k", "d"), "components.mean")
    q = x @ B.T
    L = jnp.einsum("kdr,nd->nkr", components.factor, q)
    omega = jax.nn.softmax(jnp.log(p)[None] + q @ components.mean.T + 0.5 * jnp.sum(L * L, -1), axis=1)
    centres = components.mean[None] + jnp.einsum("kdr,nkr->nkd", components.factor, L)
    return jnp.einsum("nk,nkd->nd", omega, centres)
