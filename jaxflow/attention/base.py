"""The interface of the attention primitive.

For heads h and queries q = B_h x against a cloud Σ_j w_j δ_{x_j}:

    m_h(x) = Σ_j w_j e^{⟨q, x_j⟩},      a_h(x) = m_h(x)^{-1} Σ_j w_j e^{⟨q, x_j⟩} x_j
"""

import abc
from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


@final
class Tilted(eqx.Module):
    """The exponentially tilted cloud, seen by every query of every head.

    Attributes:
        log_m: log m_h(x_i), (h, n). A logarithm, because m itself overflows from ⟨q, x⟩ ≈ 709 on.
        mean: a_h(x_i), (h, n, d).
        second: m_h^{-1} Σ_j w_j e^{⟨q, x_j⟩} x_j x_jᵀ, (h, n, d, d), where it was asked for.
        quartic: Σ_ij w_i w_j e^{⟨q_i, x_j⟩} (|x_i|²|x_j|² + ⟨x_i,x_j⟩²), (h,), where it was asked for.
        error: a bound on the errors of log m_h(x_i) and of the entries of a_h(x_i), (h, n), from kernels that make one
            beyond rounding.
    """

    log_m: Float[Array, "h n"]
    mean: Float[Array, "h n d"]
    second: Float[Array, "h n d d"] | None
    quartic: Float[Array, " h"] | None = None
    error: Float[Array, "h n"] | None = None


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

    def free(
        self,
        B: Float[Array, "h d d"],
        x: Float[Array, "m d"],
        log_w: Float[Array, " m"],
        *,
        at: Float[Array, "n d"] | None = None,
        second: bool = False,
        causal: bool = False,
    ) -> Tilted:
        """Tilt the cloud by the queries B_h y of the points y in `at`; None: of its own tokens.

        Args:
            B: any matrices.
            x: the tokens attended to.
            log_w: their log weights.
            at: the points that ask.
            second, causal: as above.
        """
        q = jnp.einsum("hij,nj->hni", B, x if at is None else at)
        return self(q, x, log_w, second=second, causal=causal)

    def tied(
        self, D: Float[Array, "h d d"], x: Float[Array, "n d"], log_w: Float[Array, " n"], *, quartic: bool = False
    ) -> Tilted:
        """Tilt the cloud by its own queries D_h x_i, D_h symmetric, so that ⟨q_i, x_j⟩ = ⟨q_j, x_i⟩.

        A kernel may make use of that; this one does not.

        Args:
            D: symmetric matrices.
            x: the tokens, which are queries and keys.
            log_w: their log weights.
            quartic: also return `Tilted.quartic`.
        """
        tilted = self.free(D, x, log_w, second=quartic)
        return with_quartic(tilted, x, log_w) if quartic else tilted


def with_quartic(tilted: Tilted, x: Float[Array, "n d"], log_w: Float[Array, " n"]) -> Tilted:
    """With `quartic` in the place of `second`: Σ_i w_i m_h(x_i) (|x_i|² tr S + x_iᵀ S x_i), S the second moment."""
    S, wm = tilted.second, jnp.exp(log_w[None] + tilted.log_m)
    assert S is not None
    squares = jnp.sum(x * x, -1)[None] * jnp.trace(S, axis1=-2, axis2=-1) + jnp.einsum("ik,hikl,il->hi", x, S, x)
    return Tilted(tilted.log_m, tilted.mean, None, jnp.sum(wm * squares, -1))
