"""The interface of the attention primitive.

For heads h and queries q = B_h x against a cloud Σ_j w_j δ_{x_j}:

    m_h(x) = Σ_j w_j e^{⟨q, x_j⟩},      a_h(x) = m_h(x)^{-1} Σ_j w_j e^{⟨q, x_j⟩} x_j
"""

import abc
from typing import final

import equinox as eqx
from jaxtyping import Array, Float


@final
class Tilted(eqx.Module):
    """The exponentially tilted cloud, seen by every query of every head.

    Attributes:
        log_m: log m_h(x_i), (h, n). A logarithm, because m itself overflows from ⟨q, x⟩ ≈ 709 on.
        mean: a_h(x_i), (h, n, d).
        second: m_h^{-1} Σ_j w_j e^{⟨q, x_j⟩} x_j x_jᵀ, (h, n, d, d), where it was asked for.
    """

    log_m: Float[Array, "h n"]
    mean: Float[Array, "h n d"]
    second: Float[Array, "h n d d"] | None


class AbstractKernel(eqx.Module):
    """A way to compute `Tilted`. All kernels give the same answer; they differ in time and memory."""

    @abc.abstractmethod
    def __call__(
        self,
        q: Float[Array, "h n d"],
        x: Float[Array, "m d"],
        log_w: Float[Array, " m"],
        *,
        second: bool = False,
        causal: bool = False,
    ) -> Tilted:
        """Tilt the cloud (x, log_w) by every query.

        Args:
            q: queries B_h x_i.
            x: the tokens attended to.
            log_w: their log weights.
            second: also return second moments.
            causal: query i sees tokens j ≤ i only (m = n); weights are not renormalised over j ≤ i.
        """
