"""The energy balance of infinitely many heads:

    E(t) − E(0) = ∫∂ₜE dt − ∫R dt,      ∂ₜE = ½ Σ_ij w_i w_j ∂ₜk(⟨x_i,x_j⟩, t)

The noise of the weights averages out: what is an Itô term and a martingale for H heads is part of ∂ₜk here.
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Real
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.particles.infinite import Averages, InfiniteHeads
from jaxflow.solve import AbstractObservable
from jaxflow.solve.observe import check_watched


@final
class LimitBalance(eqx.Module):
    """The balance at saved times t; every field has shape (t,).

    Attributes:
        energy: E.
        rate: R, −dE/dt at frozen kernel; negative when tokens ascend.
        slope: Σ_i w_i |g(x_i)|², the squared slope of E in the plain W₂ metric: R when tokens descend, −R when they
            ascend. The published G² needs the mobility (E_h m_h^{-1})^{-1}, which has no closed form.
        rate_integral, dt_energy_integral: ∫R, ∫∂ₜE from 0 to t.
        residual: E(t) − E(0) − ∫∂ₜE + ∫R, zero up to the error of the solver.
    """

    energy: Float[Array, "*t"]
    rate: Float[Array, "*t"]
    slope: Float[Array, "*t"]
    rate_integral: Float[Array, "*t"]
    dt_energy_integral: Float[Array, "*t"]
    residual: Float[Array, "*t"]


@final
class LimitEnergy(AbstractObservable):
    """The observable behind `limit_balance`."""

    def prepare(self, flow: Any, state: Any) -> Any:
        fix = "use jf.particles.balance for AttentionFlow"
        check_watched(flow, InfiniteHeads, what="infinitely many heads", fix=fix)
        return flow

    def measure(
        self, flow: InfiniteHeads, t: Real, state: Cloud, schedule: Any, noise: Any
    ) -> tuple[Array, Array, Array]:
        velocity, averages = flow.field(t, state)
        g = Sphere().project(state.points, averages.gradient)
        slope = jnp.einsum("i,ik,ik->", state.weights, g, g)
        return 0.5 * jnp.sum(state.weights * averages.phi), _rate(state, velocity, averages), slope

    def rates(
        self,
        flow: InfiniteHeads,
        t: Real,
        state: Cloud,
        schedule: Any,
        noise: Any,
        velocity: Float[Array, "n d"],
        terms: Averages,
    ) -> tuple[Array, Array]:
        return _rate(state, velocity, terms), 0.5 * jnp.sum(state.weights * terms.dt_phi)

    def report(self, measured: tuple[Array, Array, Array], integrals: tuple[Array, Array]) -> LimitBalance:
        E, rate, slope = measured
        R, work = jax.tree.map(lambda x: x - x[0], integrals)
        return LimitBalance(E, rate, slope, R, work, E - E[0] - work + R)


def _rate(state: Cloud, velocity: Array, averages: Averages) -> Array:
    """R = −Σ_i w_i ⟨g(x_i), v_i⟩."""
    g = Sphere().project(state.points, averages.gradient)
    return -jnp.einsum("i,ik,ik->", state.weights, g, velocity)


limit_balance = LimitEnergy()
"""Observe energy and balance of `InfiniteHeads`: `jf.solve(..., observe=jf.particles.limit_balance)`."""
