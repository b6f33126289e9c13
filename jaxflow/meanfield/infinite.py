"""A density under infinitely many heads, which are integrated out (see `particles.InfiniteHeads`):

    φ(x) = ∫k(⟨x,y⟩, t) ρ(y) dy,      v = ∓∇φ,      ∂ₜρ + div(ρ v) = Δρ/κ,      E = ½∫φρ

The kernel depends on the angle alone: it multiplies each coefficient by a number of its degree (Funk and Hecke),

    φ_k = |S| κ_l c_k,      κ_l(t) = ∫₋₁¹ k(s, t) P_l(s) (1 − s²)^{(d−3)/2} ds / ∫₋₁¹ (1 − s²)^{(d−3)/2} ds

with Legendre's polynomials on S² and Chebyshev's on S¹. No pair of points is formed, and v is exact.
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import eval_chebyt, eval_legendre, roots_jacobi

from jaxflow._checks import check_positive, check_same_dtype
from jaxflow._typing import Flag, Real
from jaxflow.errors import InputError
from jaxflow.meanfield.density import NEGATIVE, Density
from jaxflow.meanfield.flow import check_grid, check_single_density, diffusion, negative
from jaxflow.meanfield.waves import Waves, area, degrees, waves
from jaxflow.particles import AbstractLimit
from jaxflow.particles.flow import Law
from jaxflow.solve import AbstractFlow
from jaxflow.weights import AbstractSchedule, Layer
from jaxflow.weights.layer import Direction, sign_of
from jaxflow.weights.schedules import Held


@final
class Potential(eqx.Module):
    """What the velocity was computed from, at the points of the flow's grid.

    Attributes:
        rho: ρ. phi: φ. dt_phi: ∂ₜφ at frozen ρ; all (g,).
        gradient: ∇φ in components, (d − 1, g).
    """

    rho: Float[Array, " g"]
    phi: Float[Array, " g"]
    dt_phi: Float[Array, " g"]
    gradient: Float[Array, "e g"]


@final
class InfiniteDensityFlow(AbstractFlow):
    """A density on S¹ or S² under the average over a law of heads: infinitely many tokens and heads.

    Args:
        kernel: k(s, t), for instance `particles.OrnsteinUhlenbeckLimit(noise_var=2.0)`.
        dim: 2 or 3.
        direction: "descend" or "ascend".
        kappa, negativity: as for `DensityFlow`.
        grid: the degree of the grid on which ρ v is formed; None: 3N/2, with which the weak form is exact.

    Raises:
        InputError: no direction, a dimension other than 2 and 3; on `solve`, a density of another dimension or
            precision.

    Status: `unresolved` where the density has become finer than degree N.

    Cost: two transforms of O(N³) per evaluation on S².

    Source: arXiv:2605.18870, §3 and §5.
    """

    kernel: AbstractLimit
    dim: int = eqx.field(static=True, kw_only=True)
    direction: Direction = eqx.field(static=True, kw_only=True)
    kappa: Float[Array, ""] | float | None = eqx.field(default=None, kw_only=True)
    grid: int | None = eqx.field(static=True, default=None, kw_only=True)
    negativity: float = eqx.field(static=True, default=NEGATIVE, kw_only=True)
    law: Law = eqx.field(static=True, default="unnormalized", init=False)
    # An empty layer: no weights are left to schedule.
    weights: AbstractSchedule = eqx.field(default=Held(layer=Layer()), init=False)

    def __check_init__(self) -> None:
        if self.dim not in (2, 3):
            raise InputError("must be 2 for S¹ or 3 for S²", where="dim", got=self.dim)
        if self.direction not in ("descend", "ascend"):
            raise InputError("is not known", where="direction", got=self.direction, expected='"descend" or "ascend"')
        if self.kappa is not None:
            check_positive(self.kappa, "kappa", "leave kappa out for tokens without noise")
        check_positive(self.negativity, "negativity")

    def check(self, state: Any) -> None:
        check_single_density(state)
        check_same_dtype({"state": state, "kernel": self.kernel})
        if state.dim != self.dim:
            raise InputError(
                "lives in another dimension than the flow",
                where="state",
                got=f"d = {state.dim}",
                expected=f"d = {self.dim}",
            )
        check_grid(self.grid, state.degree)

    def facts(self, state: Density) -> dict[str, Any]:
        return {"harmonic_degree": jnp.asarray(0), "grid_degree": jnp.asarray(self.grid_degree(state))}

    def grid_degree(self, state: Density) -> int:
        """The degree of the grid on which ρ v is formed."""
        return self.grid or -(-3 * state.degree // 2)

    def on(self, state: Density) -> Waves:
        """The functions of the density on the flow's grid."""
        return waves(state.dim, state.degree, self.grid_degree(state))

    def split(self, state: Density) -> tuple[Array, Any]:
        return state.coefficients, None

    def join(self, y: Array, rest: Any) -> Density:
        return Density(y, self.dim)

    @property
    def retraction(self) -> None:
        return None

    def field(self, t: Real, state: Density, layer: Layer | None = None) -> tuple[Float[Array, "K"], Potential]:
        W, c = self.on(state), state.coefficients
        kappa, dt_kappa = (area(self.dim) * of_l for of_l in multipliers(self.kernel, self.dim, state.degree, t))
        phi, dt_phi = kappa.astype(c.dtype) * c, dt_kappa.astype(c.dtype) * c
        found = Potential(W.values(c), W.values(phi), W.values(dt_phi), W.gradient(phi))
        flux = sign_of(self.direction) * found.rho[None] * found.gradient
        return W.against_gradients(flux) + diffusion(state, self.kappa), found

    def lost(self, state: Density) -> Flag:
        return negative(self.on(state).values(state.coefficients), self.negativity)

    def time_left(self, state: Density, terms: Any) -> None:
        """None: no density becomes infinite in finite time."""
        return


def multipliers(kernel: AbstractLimit, dim: int, degree: int, t: Real) -> tuple[Float[Array, "K"], Float[Array, "K"]]:
    """κ_l(t) and ∂ₜκ_l(t) of each function up to the degree, by Gauss–Jacobi quadrature with degree + 32 nodes."""
    s, w, P = _nodes(dim, degree)
    dtype = jnp.result_type(float)
    t, at = jnp.asarray(t, dtype), jnp.asarray(s, dtype)[None]
    k, dk = jax.jvp(lambda t: jnp.exp(kernel.log_kernel(at, t))[0], (t,), (jnp.ones_like(t),))
    table = jnp.asarray(P * w, dtype)
    of_l = degrees(dim, degree)
    return (table @ k)[of_l], (table @ dk)[of_l]


def _nodes(dim: int, degree: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes s, weights that sum to 1, and P_l(s), (l, s)."""
    s, w = roots_jacobi(degree + 32, (dim - 3) / 2, (dim - 3) / 2)
    l = np.arange(degree + 1)[:, None]
    P = eval_chebyt(l, s[None]) if dim == 2 else eval_legendre(l, s[None])
    return s, w / w.sum(), P
