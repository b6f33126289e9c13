"""Tokens under multi-head attention and affine feed-forward:

softmax        ẋ = P_x (A x + b + Σ_h c_h V_h a_h(x))                      the transformer
unnormalized   ẋ = P_x (A x + b + Σ_h c_h m_h(x) V_h a_h(x))               gradient flow of E when tied
steepest       ẋ = ∓ (Σ_h c̄_h m_h(x)^{-1}) P_x Σ_h c̄_h m_h(x) D_h a_h(x)   tied only, c̄_h = c_h/Σc: steepest descent
                                                                          of E in the metric of the effective mobility
hardmax        the softmax law with a_h(x) the mean of the tokens that maximise ⟨B_h x, x_j⟩

With relu=True the feed-forward part is relu(A x + b). Where layer normalisation stands, with u the bracket above and
x = rθ, r = |x| (arXiv:2510.22026):

post   the sphere: normalised after every layer, as above
pre    ẋ = u(θ) in R^d, the tokens attended to normalised as well: θ̇ = P_θ u(θ)/r, ṙ = ⟨θ, u(θ)⟩
peri   ẋ = u(θ)/|u(θ)|

With noise, + √(2/κ) P_x ∘ dW (Stratonovich: Brownian motion of the sphere; arXiv:2412.14813).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_positive, is_concrete
from jaxflow._typing import PRNGKey, Real
from jaxflow.attention import AbstractKernel, Auto, Chunked, Dense, Harmonic, Tilted, hardmax
from jaxflow.errors import InputError
from jaxflow.geometry import AbstractGeometry, Sphere
from jaxflow.geometry.check import check_on
from jaxflow.measures import Cloud
from jaxflow.measures.single import check_single_cloud
from jaxflow.solve import AbstractFlow, AbstractMethod, Euler
from jaxflow.solve.methods import AbstractFixed
from jaxflow.weights import AbstractSchedule, Layer, largest_norm
from jaxflow.weights.layer import Direction, check_direction, sign_of

Law = Literal["softmax", "unnormalized", "steepest", "hardmax"]
LAWS: tuple[Law, ...] = ("softmax", "unnormalized", "steepest", "hardmax")
Normalization = Literal["post", "pre", "peri"]


def _number(x: Any) -> Array | None:
    """A scalar parameter as an array, so that programs are shared between its values."""
    return None if x is None else jnp.asarray(x, jnp.result_type(float))


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
        law: "softmax", "unnormalized", "steepest" or "hardmax" (see the top of this file). The hardmax law is
            discontinuous where a token changes its leader: fixed steps only, of order one there whatever the method.
        direction: for tied heads: "descend" (V = −D) or "ascend" (V = D). Free heads have none.
        geometry: `Sphere()` or `Euclidean()`.
        kernel: how the sums over pairs are done: `Chunked()` in constant memory, `Dense()` all at once,
            `Harmonic(norm)` on S¹ and S² without pairs, `Auto()` by whichever is faster (all in `attention`).
        causal: token i attends to tokens j ≤ i only.
        relu: the feed-forward part is relu(Ax + b), entry by entry, instead of Ax + b. Gaussians do not stay
            Gaussians then; `gaussian.relu_bound` says how far they stray.
        second: also compute what the Itô term needs: the tilted second moments, or for tied heads `Tilted.quartic`
            alone (observables switch this on when they need it).
        normalization: "post" on the sphere; "pre" or "peri" in R^d, where tokens must keep away from 0. None: "post" on
            the sphere, no normalisation in R^d.
        kappa: κ > 0 of the noise √(2/κ) dW on every token; None: no noise. Runs by `Euler()` with a key, and is
            independent of the noise of random weights, which may be on too.

    Raises:
        InputError: a direction that is missing or does not apply, an unknown law, "steepest" with free heads or
            normalisation in R^d, relu without feed-forward, a normalisation that does not fit the geometry, "peri" with
            feed-forward, κ ≤ 0; on `solve`, a method that hardmax or noise does not allow, a token at 0 under "pre"
            or "peri".

    Status: `nonfinite` where a token under "pre" or "peri" runs into 0, or attention under "peri" vanishes.

    Cost: O(h n² d) per evaluation.

    Source: arXiv:2605.18870 (tied heads on the sphere); arXiv:2606.07600 (free heads in R^d); arXiv:2510.22026
    (layer normalisation); arXiv:2412.14813 (noise).
    """

    weights: AbstractSchedule
    law: Law = eqx.field(static=True, default="softmax")
    direction: Direction | None = eqx.field(static=True, default=None)
    geometry: AbstractGeometry = Sphere()
    kernel: AbstractKernel = Chunked()
    causal: bool = eqx.field(static=True, default=False)
    relu: bool = eqx.field(static=True, default=False)
    second: bool = eqx.field(static=True, default=False)
    normalization: Normalization | None = eqx.field(static=True, default=None)
    kappa: Float[Array, ""] | float | None = eqx.field(default=None, converter=_number)

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
        check_normalization(self.normalization, self.geometry, self.law, layer)
        if self.kappa is not None:
            check_positive(self.kappa, "kappa", "leave kappa out for tokens without noise")
        if isinstance(self.kernel, Harmonic) and not self.sees_all:
            raise InputError(
                "needs tokens on the sphere that all see each other",
                where="kernel",
                got=f"Harmonic with {type(self.geometry).__name__}(), law={self.law}, causal={self.causal}",
                fix="take Chunked()",
            )

    def check(self, state: Any) -> None:
        check_single_cloud(state)
        d = self.weights.at(0.0).dim
        if state.points.shape[1] != d:
            raise InputError(
                "live in another dimension than the weights",
                where="state.points",
                got=state.points.shape,
                expected=f"(n, {d})",
            )
        check_on(self.geometry, state.points, "state.points")
        if isinstance(self.kernel, Harmonic):
            self.kernel.degree_for(d, state.points.dtype)
        if self._scaled and is_concrete(state.points) and not bool((state.points != 0).any(-1).all()):
            raise InputError(
                "holds a token at 0, which has no direction to normalise",
                where="state.points",
                got="0",
                expected="tokens away from 0",
                fix=f'move it, or do without normalization="{self.normalization}"',
            )

    def check_method(self, method: AbstractMethod) -> None:
        if self.law == "hardmax" and not isinstance(method, AbstractFixed):
            raise InputError(
                "does not apply to hardmax: its velocity jumps, and no step meets a tolerance across a jump",
                where="method",
                got=type(method).__name__,
                expected="Euler(), Heun() or RK4() with dt",
            )
        if self.kappa is not None and not isinstance(method, Euler):
            raise InputError(
                "does not apply to noisy tokens: their paths are too rough for its error estimate and its order",
                where="method",
                got=type(method).__name__,
                expected="Euler() with dt",
                fix="or leave kappa out",
            )

    @property
    def random(self) -> bool:
        return self.weights.random or self.kappa is not None

    @property
    def _scaled(self) -> bool:
        """Whether layers see tokens divided by their norms."""
        return self.normalization in ("pre", "peri")

    @property
    def sees_all(self) -> bool:
        """Whether attention is a sum over all tokens of the unit sphere."""
        spherical = isinstance(self.geometry, Sphere) or self._scaled
        return spherical and not self.causal and self.law != "hardmax"

    def settle(self, state: Cloud, t0: float, t1: float) -> "AttentionFlow":
        """With `Auto()` replaced by the kernel it stands for."""
        if not isinstance(self.kernel, Auto):
            return self
        norm = largest_norm(self.weights, t0, t1) if self.sees_all else None
        return replace(self, kernel=Chunked() if norm is None else self.chosen(self.kernel, norm, state))

    def chosen(self, auto: Auto, norm: float, state: Cloud) -> AbstractKernel:
        """What `auto` takes for these tokens, for heads with ‖B_h‖ ≤ norm."""
        layer, (n, d) = self.weights.at(0.0), state.points.shape
        return auto.choose(norm, n=n, dim=d, heads=layer.heads, dtype=state.points.dtype)

    def facts(self, state: Cloud) -> dict[str, Any]:
        degree = 0
        if isinstance(self.kernel, Harmonic):
            degree = self.kernel.degree_for(state.points.shape[1], state.points.dtype)
        return {"harmonic_degree": jnp.asarray(degree)}

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

    def inputs(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """What a layer sees: x, or x/|x| under "pre" and "peri"."""
        return Sphere().retract(x) if self._scaled else x

    def tilt(self, state: Cloud, layer: Layer) -> Tilted | None:
        """log m_h(x_i) and a_h(x_i): the one pass over all pairs."""
        if layer.B is None:
            return None
        x = self.inputs(state.points)
        if layer.tied and not self.causal and self.law != "hardmax":
            return self.kernel.tied(layer.B, x, state.log_w, quartic=self.second)
        if self.law == "hardmax":
            q = jnp.einsum("hij,nj->hni", layer.B, x)
            block = x.shape[0] if isinstance(self.kernel, Dense) else getattr(self.kernel, "block", None)
            return hardmax(q, x, state.log_w, causal=self.causal, block=block)
        return self.kernel.free(layer.B, x, state.log_w, second=self.second, causal=self.causal)

    def velocity(self, state: Cloud, layer: Layer, tilted: Tilted | None) -> Float[Array, "n d"]:
        """ẋ_i by the law, from the tilted cloud."""
        x = self.inputs(state.points)
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
        if self.normalization == "peri":
            u = Sphere().retract(u)
        return self.geometry.project(x, u)

    def shake(self, y: Float[Array, "n d"], h: Real, key: PRNGKey) -> Float[Array, "n d"] | None:
        """√(2h/κ) P_x ξ, ξ standard normal.

        In Itô's form Brownian motion of the sphere has the drift −(d−1)x/κ, which is radial. Renormalising supplies it:
        |x + √(2h/κ) P_x ξ|² = 1 + (2h/κ)|P_x ξ|² has mean 1 + 2h(d−1)/κ, so that dividing by the root adds
        −h(d−1)x/κ + O(h²) in the mean, and the scheme is of weak order 1.
        """
        if self.kappa is None:
            return None
        # The roots are apart because √h has no derivative at the steps of length 0 of a run that has ended.
        size = jnp.sqrt(2 * jnp.asarray(h, y.dtype)) / jnp.sqrt(jnp.asarray(self.kappa, y.dtype))
        return size * self.geometry.project(y, jax.random.normal(key, y.shape, y.dtype))

    def time_left(self, state: Cloud, terms: Terms) -> None:
        """None: attention stays in the convex hull of the tokens."""
        return


def check_normalization(
    normalization: Normalization | None, geometry: AbstractGeometry, law: Law, layer: Layer
) -> None:
    """Refuse a placement of layer normalisation that the space, the law or the layer has no room for."""
    if normalization is None:
        return
    if normalization not in ("post", "pre", "peri"):
        raise InputError(
            "is not known", where="normalization", got=normalization, expected='"post", "pre", "peri" or None'
        )
    post = normalization == "post"
    if post != isinstance(geometry, Sphere):
        raise InputError(
            "keeps tokens on the sphere" if post else "lets tokens leave the sphere",
            where="normalization",
            got=f"{normalization} with {type(geometry).__name__}()",
            expected="geometry=jf.Sphere()" if post else "geometry=jf.Euclidean()",
        )
    if not post and law == "steepest":
        raise InputError(
            "descends an energy of tokens that are not normalised",
            where="law",
            got=f"steepest with {normalization}",
            expected='"softmax", "unnormalized" or "hardmax"',
        )
    if normalization == "peri" and (layer.B is None or layer.A is not None or layer.b is not None):
        raise InputError(
            "divides attention by its own norm, and has no rule for feed-forward",
            where="normalization",
            got="peri with a feed-forward A, b",
            expected="heads alone",
        )
