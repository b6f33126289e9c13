"""Tokens under multi-head attention and affine feed-forward:

softmax        ẋ = P_x (A x + b + Σ_h c_h V_h a_h(x))                      the transformer
unnormalized   ẋ = P_x (A x + b + Σ_h c_h m_h(x) V_h a_h(x))               gradient flow of E when tied
steepest       ẋ = ∓ (Σ_h c̄_h m_h(x)^{-1}) P_x Σ_h c̄_h m_h(x) D_h a_h(x)   tied only, c̄_h = c_h/Σc: steepest descent
                                                                          of E in the metric of the effective mobility

With relu=True the feed-forward part is relu(A x + b).
"""

from collections.abc import Callable
from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import is_concrete
from jaxflow._typing import Real
from jaxflow.attention import AbstractKernel, Chunked, Tilted
from jaxflow.errors import InputError
from jaxflow.geometry import AbstractGeometry, Sphere
from jaxflow.measures import Cloud
from jaxflow.solve import AbstractFlow
from jaxflow.weights import AbstractSchedule, Layer
from jaxflow.weights.layer import Direction, check_direction, sign_of

Law = Literal["softmax", "unnormalized", "steepest"]
LAWS: tuple[Law, ...] = ("softmax", "unnormalized", "steepest")


@final
class Terms(eqx.Module):
    """What a velocity was computed from: the layer and the cloud it tilted (None without heads)."""

    layer: Layer
    tilted: Tilted | None


@final
class AttentionFlow(AbstractFlow):
    """A cloud of tokens moved by layers of attention, on the sphere (layer normalisation) or in R^d.

    Args:
        weights: any schedule of layers; the same object moves Gaussians in `gaussian.MomentFlow`.
        law: "softmax", "unnormalized" or "steepest" (see the top of this file).
        direction: for tied heads: "descend" (V = −D) or "ascend" (V = D). Free heads have none.
        geometry: `Sphere()` or `Euclidean()`.
        kernel: how the sums over pairs are done: `Chunked()` in constant memory, `Dense()` all at once.
        causal: token i attends to tokens j ≤ i only.
        relu: the feed-forward part is relu(Ax + b), entry by entry, instead of Ax + b. Gaussians do not stay
            Gaussians then; `gaussian.relu_bound` says how far they stray.
        second: also compute the tilted second moments (observables switch this on when they need it).

    Raises:
        InputError: a direction that is missing or does not apply, an unknown law, "steepest" with free heads,
            relu without feed-forward.

    Cost: O(h n² d) per evaluation.

    Source: arXiv:2605.18870 (tied heads on the sphere); arXiv:2606.07600 (free heads in R^d).
    """

    weights: AbstractSchedule
    law: Law = eqx.field(static=True, default="softmax")
    direction: Direction | None = eqx.field(static=True, default=None)
    geometry: AbstractGeometry = Sphere()
    kernel: AbstractKernel = Chunked()
    causal: bool = eqx.field(static=True, default=False)
    relu: bool = eqx.field(static=True, default=False)
    second: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if self.law not in LAWS:
            raise InputError("is not known", where="law", got=self.law, expected=", ".join(LAWS))
        layer = self.weights.at(0.0)
        check_direction(layer, self.direction)
        if self.law == "steepest" and not layer.tied:
            raise InputError(
                "needs tied heads: only they have an energy to descend",
                where="law",
                got="steepest with free heads B, V",
                fix='give tied heads D, or take law="softmax"',
            )
        if self.relu and layer.A is None and layer.b is None:
            raise InputError(
                "needs a feed-forward part", where="relu", got="heads only", fix="give A or b, or leave it"
            )

    def check(self, state: Any) -> None:
        if not isinstance(state, Cloud):
            raise InputError(
                "must be a Cloud of tokens", where="state", got=type(state).__name__, fix="jf.Cloud(points)"
            )
        if state.points.ndim != 2:
            raise InputError("must be a single cloud", where="state.points", got=state.points.shape, fix="use jax.vmap")
        d = self.weights.at(0.0).dim
        if state.points.shape[1] != d:
            raise InputError(
                "live in another dimension than the weights",
                where="state.points",
                got=state.points.shape,
                expected=f"(n, {d})",
            )
        check_on(self.geometry, state.points)

    def split(self, state: Cloud) -> tuple[Array, Any]:
        return state.points, state.log_weights

    def join(self, y: Array, rest: Any) -> Cloud:
        return Cloud(y, rest)

    @property
    def retraction(self) -> Callable[[Array], Array] | None:
        return self.geometry.retract if isinstance(self.geometry, Sphere) else None

    def field(self, t: Real, state: Cloud, layer: Layer) -> tuple[Float[Array, "n d"], Terms]:
        tilted = self.tilt(state, layer)
        return self.velocity(state, layer, tilted), Terms(layer, tilted)

    def tilt(self, state: Cloud, layer: Layer) -> Tilted | None:
        """log m_h(x_i) and a_h(x_i): the one pass over all pairs."""
        if layer.B is None:
            return None
        x = state.points
        q = jnp.einsum("hij,nj->hni", layer.B, x)
        return self.kernel(q, x, state.log_w, second=self.second, causal=self.causal)

    def velocity(self, state: Cloud, layer: Layer, tilted: Tilted | None) -> Float[Array, "n d"]:
        """ẋ_i by the law, from the tilted cloud."""
        x = state.points
        u = jnp.zeros_like(x)
        if layer.A is not None:
            u = u + x @ layer.A.T
        if layer.b is not None:
            u = u + layer.b[None]
        if self.relu:
            u = jax.nn.relu(u)
        if tilted is not None and layer.V is not None and layer.mass is not None:
            c = layer.mass[:, None]
            if self.law == "unnormalized":
                c = c * jnp.exp(tilted.log_m)
            elif self.law == "steepest":
                m, c = jnp.exp(tilted.log_m), c / jnp.sum(c)
                c = c * m * jnp.sum(c / m, axis=0, keepdims=True)
            c = sign_of(self.direction) * jnp.broadcast_to(c, tilted.log_m.shape)
            u = u + jnp.einsum("hn,hij,hnj->ni", c, layer.V, tilted.mean)
        return self.geometry.project(x, u)

    def time_left(self, state: Cloud, terms: Terms) -> None:
        """None: attention stays in the convex hull of the tokens."""
        return


def check_on(geometry: AbstractGeometry, points: Array) -> None:
    """Refuse tokens off the sphere by more than rounding (they would be moved silently)."""
    if not is_concrete(points):
        return
    gap = float(jnp.max(geometry.violation(points)))
    if gap > (1e-4 if points.dtype == jnp.float32 else 1e-8):
        raise InputError(
            "are not on the sphere",
            where="state.points",
            got=f"a norm off 1 by {gap:.2e}",
            expected="unit vectors",
            fix="divide by the norms (jf.Sphere().retract), or take geometry=jf.Euclidean()",
        )
