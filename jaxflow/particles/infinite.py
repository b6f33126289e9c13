"""Tokens on the sphere under infinitely many heads, which are integrated out instead of sampled:

    φ(x) = E_h m_h(x) = Σ_j w_j k(⟨x,x_j⟩, t)
    g(x) = P_x E_h m_h D_h a_h(x) = P_x Σ_j w_j ∂_s k(⟨x,x_j⟩, t) x_j
    ẋ = ∓ g(x),     E = ½ Σ_i w_i φ(x_i),     R = −Σ_i w_i ⟨g(x_i), ẋ_i⟩ = −dE/dt at frozen k

The second line: E_h D_h y e^{⟨x,D_h y⟩} = ∇_x E_h e^{⟨x,D_h y⟩}, which for Gaussian D_h is integration by parts; what
∇_x has beside ∂_s k y (k also depends on |x|) is radial. Both are linear in e^{⟨x,D_h y⟩}. The softmax law averages
D_h a_h = m_h^{-1}∇m_h, and the steepest law needs E_h m_h^{-1}: reciprocals of sums of log-normal numbers, of which no
closed form is known, so that these two laws are refused.
"""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_same_dtype
from jaxflow._typing import Real, Scalar
from jaxflow.attention.blocks import by_blocks
from jaxflow.errors import InputError
from jaxflow.geometry import Sphere
from jaxflow.geometry.check import check_on
from jaxflow.measures import Cloud
from jaxflow.measures.single import check_single_cloud
from jaxflow.particles.flow import Law
from jaxflow.particles.limit import AbstractLimit
from jaxflow.solve import AbstractFlow
from jaxflow.weights import AbstractSchedule, Layer
from jaxflow.weights.layer import Direction, sign_of
from jaxflow.weights.schedules import Held


@final
class Averages(eqx.Module):
    """Means over all heads, at every token: φ = E m_h, its gradient before projection, and ∂ₜφ."""

    phi: Float[Array, " n"]
    gradient: Float[Array, "n d"]
    dt_phi: Float[Array, " n"]


@final
class InfiniteHeads(AbstractFlow):
    """A cloud of tokens on the sphere, moved by the average over a law of heads: the limit H → ∞ of `AttentionFlow`.

    The distance to H sampled heads falls like H^{-1/2}, with a constant of order e^{τ/2}.

    Args:
        kernel: k(s, t), for instance `OrnsteinUhlenbeckLimit(noise_var=2.0)`.
        direction: "descend" (tokens repel) or "ascend".
        law: "unnormalized" alone has a closed form (see the top of this file).
        block: tokens per block of the sums over pairs; None: as `attention.Chunked` chooses.

    Raises:
        InputError: another law, no direction, a block below 1; on `solve`, tokens that are not on the sphere.

    Cost: O(n² d) per evaluation, whatever the number of heads it stands for.

    Source: arXiv:2605.18870, §3 and §5.
    """

    kernel: AbstractLimit
    direction: Direction = eqx.field(static=True, kw_only=True)
    law: Law = eqx.field(static=True, default="unnormalized", kw_only=True)
    block: int | None = eqx.field(static=True, default=None, kw_only=True)
    # An empty layer: no weights are left to schedule.
    weights: AbstractSchedule = eqx.field(default=Held(layer=Layer()), init=False)

    def __check_init__(self) -> None:
        if self.law != "unnormalized":
            raise InputError(
                "has no closed form when heads are integrated out: it needs E[1/m_h] or E[∇m_h/m_h]",
                where="law",
                got=self.law,
                expected="unnormalized",
                fix="sample heads: AttentionFlow(weights.OrnsteinUhlenbeck(initial=random_heads(...), ...))",
            )
        if self.direction not in ("descend", "ascend"):
            raise InputError("is not known", where="direction", got=self.direction, expected='"descend" or "ascend"')
        if self.block is not None and self.block < 1:
            raise InputError("must be at least 1", where="block", got=self.block)

    def check(self, state: Any) -> None:
        check_single_cloud(state)
        check_same_dtype({"state": state, "kernel": self.kernel})
        check_on(Sphere(), state.points, "state.points")

    def split(self, state: Cloud) -> tuple[Array, Any]:
        return state.points, state.log_weights

    def join(self, y: Array, rest: Any) -> Cloud:
        return Cloud(y, rest)

    @property
    def retraction(self) -> Callable[[Array], Array]:
        return Sphere().retract

    def field(self, t: Real, state: Cloud, layer: Layer | None = None) -> tuple[Float[Array, "n d"], Averages]:
        found = self.averages(t, state)
        return sign_of(self.direction) * Sphere().project(state.points, found.gradient), found

    def averages(self, t: Real, state: Cloud) -> Averages:
        """φ, ∇φ and ∂ₜφ at every token: one pass over all pairs."""
        x, w = state.points, state.weights
        t = jnp.asarray(t, x.dtype)

        def rows(q: Array, first: Any) -> Averages:
            s = q @ x.T
            log_k, in_s = jax.jvp(lambda s: self.kernel.log_kernel(s, t), (s,), (jnp.ones_like(s),))
            _, in_t = jax.jvp(lambda t: self.kernel.log_kernel(s, t), (t,), (jnp.ones_like(t),))
            k = jnp.exp(log_k) * w[None]
            return Averages(jnp.sum(k, 1), (k * in_s) @ x, jnp.sum(k * in_t, 1))

        return by_blocks(rows, x, pairs=x.shape[0], block=self.block)

    def energy(self, t: Real, state: Cloud) -> Scalar:
        """E = ½ Σ_ij w_i w_j k(⟨x_i,x_j⟩, t). On S² its floor is ¼∫₋₁¹k ds, reached by the uniform measure if k is
        positive definite."""
        return 0.5 * jnp.sum(state.weights * self.averages(t, state).phi)

    def time_left(self, state: Cloud, terms: Any) -> None:
        """None: tokens stay on the sphere."""
        return
