"""The transformer as a partial differential equation for the density of infinitely many tokens on S¹ or S²:

    ∂ₜρ + div(ρ v[ρ]) = Δρ/κ,      v = P_x (A x + b + Σ_h c_h V_h a_h(x)) or another law of `particles.AttentionFlow`

in Galerkin's weak form for the coefficients of ρ:

    ċ_k = ∫ ρ ⟨v, ∇Y_k⟩ dx − l(l+d−2) c_k/κ

∇Y_0 = 0, so that mass is exact. The integral is a sum over a grid of degree N + M/2, M the degree of the attention
kernel e^{⟨Bx,y⟩}: exact for the law `unnormalized`, whose velocity is a polynomial of degree M.
"""

from dataclasses import replace
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_positive
from jaxflow._typing import Flag, Real
from jaxflow.attention import Tilted
from jaxflow.errors import InputError
from jaxflow.meanfield.attention import tail_degree, tilt
from jaxflow.meanfield.density import NEGATIVE, Density
from jaxflow.meanfield.waves import Waves, laplacian, waves
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.particles.flow import LAWS, Law, Terms
from jaxflow.solve import AbstractFlow
from jaxflow.weights import AbstractSchedule, Layer, largest_norm
from jaxflow.weights.layer import Direction


@final
class OnGrid(eqx.Module):
    """What the velocity was computed from, at the points of the flow's grid.

    Attributes:
        rho: ρ, (g,).
        velocity: v, (g, d).
        tokens: the layer and the density as it tilts it, in the form in which a cloud of tokens at the grid's points
            would have them.
    """

    rho: Float[Array, " g"]
    velocity: Float[Array, "g d"]
    tokens: Terms


@final
class DensityFlow(AbstractFlow):
    """A density on S¹ or S² under layers of attention: `AttentionFlow` on the sphere with infinitely many tokens.

    Args:
        weights: any schedule of layers; the same object moves tokens in `particles.AttentionFlow`.
        law: "softmax", "unnormalized" or "steepest".
        direction: for tied heads: "descend" or "ascend".
        kappa: κ > 0 of the noise √(2/κ) dW on every token; None: no noise. No key is needed: noise on infinitely many
            tokens is diffusion.
        norm: the largest ‖B_h(t)‖₂ to come, from which M follows; None: `solve` finds it out from the weights
            (`weights.largest_norm`), which it cannot under `jit` with weights that are traced.
        tolerance: on log m_h. Default 1e-10 in float64, 1e-4 in float32.
        grid: the degree of the grid on which ρ v is formed; None: N + M/2.
        negativity: a run ends with status `unresolved` when ρ dips below −negativity · max ρ on the grid.

    Raises:
        InputError: what `AttentionFlow` refuses on the sphere; the law "hardmax", whose velocity jumps; on `solve`, a
            density of another dimension than the weights, a grid coarser than N, heads too large (M > 80 on S²).

    Status: `unresolved` where the density has become finer than degree N, as a clustering one does in finite time.

    Cost: per evaluation h g² pairs, g = 2(M + 1)² (2M + 2 on S¹), and transforms of O(h N³) on S²; M is 18, 24, 34 for
    ‖B‖ = 2, 4, 9.

    Source: arXiv:2605.18870, §2 (the equation); the weak form and its grids are this library's.
    """

    weights: AbstractSchedule
    law: Law = eqx.field(static=True, default="softmax", kw_only=True)
    direction: Direction | None = eqx.field(static=True, default=None, kw_only=True)
    kappa: Float[Array, ""] | float | None = eqx.field(default=None, kw_only=True)
    norm: float | None = eqx.field(static=True, default=None, kw_only=True)
    tolerance: float | None = eqx.field(static=True, default=None, kw_only=True)
    grid: int | None = eqx.field(static=True, default=None, kw_only=True)
    negativity: float = eqx.field(static=True, default=NEGATIVE, kw_only=True)
    second: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self) -> None:
        if self.law == "hardmax":
            raise InputError(
                "has a velocity that jumps, and no smooth density",
                where="law",
                got=self.law,
                expected=", ".join(law for law in LAWS if law != "hardmax"),
                fix="take heads of large norm, or follow a cloud with particles.AttentionFlow",
            )
        _ = self.tokens  # refuses laws, directions and noise that do not apply
        for name in ("tolerance", "negativity"):
            if getattr(self, name) is not None:
                check_positive(getattr(self, name), name)
        if self.norm is not None and not 0 <= self.norm < jnp.inf:
            raise InputError("must be a number ≥ 0", where="norm", got=self.norm)
        if self.weights.at(0.0).dim not in (2, 3):
            raise InputError(
                "densities live on S¹ and S²",
                where="weights",
                got=f"d = {self.weights.at(0.0).dim}",
                expected="d = 2 or 3",
                fix="follow a cloud of tokens with particles.AttentionFlow",
            )

    @property
    def tokens(self) -> AttentionFlow:
        """The flow of finitely many tokens under the same law."""
        return AttentionFlow(self.weights, law=self.law, direction=self.direction, kappa=self.kappa)

    @property
    def random(self) -> bool:
        return self.weights.random

    def check(self, state: Any) -> None:
        check_single_density(state)
        d = self.weights.at(0.0).dim
        if state.dim != d:
            raise InputError(
                "lives in another dimension than the weights",
                where="state",
                got=f"d = {state.dim}",
                expected=f"d = {d}",
            )
        check_grid(self.grid, state.degree)

    def settle(self, state: Density, t0: float, t1: float) -> "DensityFlow":
        """With `norm` found out from the weights."""
        if self.norm is not None:
            return self
        norm = largest_norm(self.weights, t0, t1) if self.weights.at(0.0).B is not None else 0.0
        if norm is None:
            raise InputError(
                "is needed: the weights are not known before tracing",
                where="norm",
                got=None,
                expected="the largest ‖B‖ to come",
                fix="pass DensityFlow(..., norm=...), or solve flow.settle(density, t0, t1)",
            )
        settled = replace(self, norm=norm)
        if norm > 0:
            settled.kernel_degree(state)
        return settled

    def facts(self, state: Density) -> dict[str, Any]:
        degree = 0 if self.weights.at(0.0).B is None else self.kernel_degree(state)
        return {"harmonic_degree": jnp.asarray(degree), "grid_degree": jnp.asarray(self.grid_degree(state))}

    def kernel_degree(self, state: Density) -> int:
        """M; 0 without heads."""
        if self.weights.at(0.0).B is None:
            return 0
        settled = self.settle(state, 0.0, 0.0)
        assert settled.norm is not None
        eps = float(jnp.finfo(state.coefficients.dtype).eps)
        return tail_degree(settled.norm, dim=state.dim, tolerance=self._tolerance(state) / 4, eps=eps)

    def grid_degree(self, state: Density) -> int:
        """The degree of the grid on which ρ v is formed."""
        return self.grid or state.degree + max(2, -(-self.kernel_degree(state) // 2))

    def _tolerance(self, state: Density) -> float:
        return self.tolerance or (1e-10 if state.coefficients.dtype == jnp.float64 else 1e-4)

    def on(self, state: Density) -> Waves:
        """The functions of the density on the flow's grid."""
        return waves(state.dim, state.degree, self.grid_degree(state))

    def split(self, state: Density) -> tuple[Array, Any]:
        return state.coefficients, None

    def join(self, y: Array, rest: Any) -> Density:
        return Density(y, self.weights.at(0.0).dim)

    @property
    def retraction(self) -> None:
        return None

    def field(self, t: Real, state: Density, layer: Layer) -> tuple[Float[Array, "K"], OnGrid]:
        W = self.on(state)
        x = Cloud(jnp.asarray(W.points, state.coefficients.dtype))
        tilted = self.tilt(state, layer)
        v = self.tokens.velocity(x, layer, tilted)
        rho = W.values(state.coefficients)
        return weak(W, rho, v) + diffusion(state, self.kappa), OnGrid(rho, v, Terms(layer, tilted))

    def tilt(self, state: Density, layer: Layer) -> Tilted | None:
        """log m_h and a_h at the points of the flow's grid."""
        if layer.B is None:
            return None
        return tilt(
            layer.B,
            state,
            degree=self.kernel_degree(state),
            grid=self.grid_degree(state),
            tolerance=self._tolerance(state) * 1e4,
            quartic=self.second,
        )

    def lost(self, state: Density) -> Flag:
        return negative(self.on(state).values(state.coefficients), self.negativity)

    def time_left(self, state: Density, terms: Any) -> None:
        """None: no density becomes infinite in finite time."""
        return


def weak(W: Waves, rho: Float[Array, " g"], v: Float[Array, "g d"]) -> Float[Array, "K"]:
    """∫ρ⟨v, ∇Y_k⟩ dx."""
    components = jnp.einsum("egd,gd->eg", jnp.asarray(W.frame, v.dtype), v)
    return W.against_gradients(rho[None] * components)


def diffusion(state: Density, kappa: Any) -> Any:
    """The coefficients of Δρ/κ."""
    if kappa is None:
        return 0.0
    c = state.coefficients
    return -jnp.asarray(laplacian(state.dim, state.degree), c.dtype) * c / jnp.asarray(kappa, c.dtype)


def negative(rho: Float[Array, " g"], negativity: float) -> Flag:
    """Whether ρ dips below −negativity · max ρ."""
    return jnp.min(rho) < -negativity * jnp.max(rho)


def check_single_density(state: Any) -> None:
    """Raise InputError unless `state` is a Density without leading axes."""
    if not isinstance(state, Density):
        raise InputError(
            "must be a Density", where="state", got=type(state).__name__, fix="Density.from_function or from_cloud"
        )
    state._single()
    state.check_resolved("state", "a higher degree, or a smoother start")


def check_grid(grid: int | None, degree: int) -> None:
    """Raise InputError if the grid cannot hold the density."""
    if grid is not None and grid < degree:
        raise InputError(
            "is coarser than the density",
            where="grid",
            got=grid,
            expected=f"at least its degree {degree}; {degree * 3 // 2} is usual",
        )
