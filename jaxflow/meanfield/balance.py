"""The energy balance of a density, the integrals of which `particles.balance` has sums:

    E = ½ Σ_h c̄_h ∫ m_h ρ,      G² = ∫ b̂|v|² ρ,      R = −∫⟨g, v⟩ ρ,      |∂E|² = ∫ |g|²/b̂ ρ
    E(t) − E(0) = ∫∂ₜE dt − ∫R dt + M_t

In Galerkin's form dE/dt = ∫ρ⟨v, ∇Πφ⟩ with φ = δE/δρ and Π the projection onto degrees ≤ N: the balance closes to the
accuracy of the solver if N is at least the degree of the attention kernel, which φ has.
"""

from dataclasses import fields, replace
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._typing import Real, Scalar
from jaxflow.errors import InputError
from jaxflow.meanfield.density import Density
from jaxflow.meanfield.flow import DensityFlow, OnGrid
from jaxflow.meanfield.infinite import InfiniteDensityFlow, Potential
from jaxflow.meanfield.waves import Waves
from jaxflow.measures import Cloud
from jaxflow.particles.balance import Balance, Integrals, published_sign
from jaxflow.particles.balance import balance as of_tokens
from jaxflow.particles.energy import gradient, head_average, mobility
from jaxflow.solve import AbstractObservable
from jaxflow.solve.observe import check_watched
from jaxflow.weights import AbstractRandom, AbstractSchedule, Layer
from jaxflow.weights.layer import sign_of


@final
class DensityBalance(eqx.Module):
    """The balance at saved times t; every field has shape (t,).

    Attributes:
        energy, rate, slope, gap, upper, rate_integral, slope_integral, dt_energy_integral, deficit, martingale,
            residual, slope_residual: as in `particles.Balance`.
        least: the smallest value of ρ on the flow's grid.
        mean_norm: |∫xρ dx|, the order parameter.
    """

    energy: Float[Array, "*t"]
    rate: Float[Array, "*t"]
    slope: Float[Array, "*t"]
    gap: Float[Array, "*t"]
    upper: Float[Array, "*t"]
    rate_integral: Float[Array, "*t"]
    slope_integral: Float[Array, "*t"]
    dt_energy_integral: Float[Array, "*t"]
    deficit: Float[Array, "*t"]
    martingale: Float[Array, "*t"]
    residual: Float[Array, "*t"]
    slope_residual: Float[Array, "*t"]
    least: Float[Array, "*t"]
    mean_norm: Float[Array, "*t"]


@final
class DensityEnergy(AbstractObservable):
    """The observable behind `balance`."""

    def prepare(self, flow: Any, state: Any) -> Any:
        if isinstance(flow, InfiniteDensityFlow):
            if flow.kappa is not None:
                raise InputError("does not apply: noise adds terms that it does not have", where="observe", got="kappa")
            return flow
        check_watched(flow, DensityFlow, what="flows of densities", fix="use jf.particles.balance for clouds")
        # What has no energy for tokens has none for densities.
        noisy = of_tokens.prepare(flow.tokens, None).second
        return replace(flow, second=noisy)

    def measure(self, flow: Any, t: Real, state: Density, schedule: AbstractSchedule, noise: Any) -> tuple[Array, ...]:
        mean_norm = jnp.sqrt(jnp.sum(state.mean**2))
        if isinstance(flow, InfiniteDensityFlow):
            _, found = flow.field(t, state)
            slope = _slope(flow, state, found)
            sign, rest = -sign_of(flow.direction), (jnp.min(found.rho), mean_norm)
            return _limit_energy(flow, state, found), slope, sign * slope, jnp.zeros_like(slope), slope, *rest
        layer = schedule.at(t, noise)
        _, found = flow.field(t, state, layer)
        slope, rate, upper = dissipation(flow, state, found)
        gap = rate - published_sign(flow.tokens) * slope
        return energy_of(flow, state, found), slope, rate, gap, upper, jnp.min(found.rho), mean_norm

    def rates(
        self, flow: Any, t: Real, state: Density, schedule: AbstractSchedule, noise: Any, velocity: Any, terms: Any
    ) -> Integrals:
        if isinstance(flow, InfiniteDensityFlow):
            slope, sign = _slope(flow, state, terms), -sign_of(flow.direction)
            dt_energy = 0.5 * flow.on(state).integral(terms.rho * terms.dt_phi)
            zero = jnp.zeros_like(slope)
            return Integrals(sign * slope, slope, sign * slope, zero, dt_energy, zero)
        slope, rate, upper = dissipation(flow, state, terms)
        dt_energy = work(flow, state, terms, schedule.drift(t, noise))
        if isinstance(schedule, AbstractRandom):
            assert terms.tokens.tilted.quartic is not None
            c = head_average(terms.tokens.layer)
            noise_var = jnp.broadcast_to(schedule.amplitude(t, noise) ** 2, c.shape)
            dt_energy = dt_energy + jnp.sum(noise_var / 8 * c * terms.tokens.tilted.quartic)
        sign = published_sign(flow.tokens)
        return Integrals(rate, slope, sign * slope, (slope + upper) / 2 - sign * rate, dt_energy, jnp.zeros_like(rate))

    def jump(self, flow: Any, t: Real, state: Density, before: Layer, after: Layer) -> Integrals:
        gain = energy(flow, state, after) - energy(flow, state, before)
        zero = jnp.zeros_like(gain)
        return Integrals(zero, zero, zero, zero, gain, zero)

    def kick(
        self, flow: Any, t: Real, state: Density, schedule: Any, noise: tuple[Any, Any], h: Real, terms: OnGrid
    ) -> Integrals:
        before, after = noise
        shock = work(flow, state, terms, schedule.shock(t, before, after, h))
        zero = jnp.zeros_like(shock)
        return Integrals(zero, zero, zero, zero, zero, shock)

    def report(self, measured: tuple[Array, ...], integrals: Integrals) -> DensityBalance:
        *five, least, mean_norm = measured
        same: Balance = of_tokens.report(tuple(five), integrals)  # pyright: ignore[reportArgumentType]
        return DensityBalance(
            **{field.name: getattr(same, field.name) for field in fields(same)}, least=least, mean_norm=mean_norm
        )


balance = DensityEnergy()
"""Observe energy, dissipation, their balance and the smallest density: `jf.solve(..., observe=meanfield.balance)`."""


def energy(flow: DensityFlow, state: Density, layer: Layer) -> Scalar:
    """E = ½ Σ_h c̄_h ∫∫ e^{⟨x, D_h y⟩} ρ(x) ρ(y) dx dy under this layer."""
    return energy_of(flow, state, flow.field(0.0, state, layer)[1])


def energy_of(flow: DensityFlow, state: Density, found: OnGrid) -> Scalar:
    """E from a density that has been tilted already."""
    W, m = _tilted(flow, state, found)
    return 0.5 * W.integral(found.rho * jnp.einsum("h,hg->g", head_average(found.tokens.layer), m))


def dissipation(flow: DensityFlow, state: Density, found: OnGrid) -> tuple[Scalar, Scalar, Scalar]:
    """(slope G², rate R, |∂E|²)."""
    W, _ = _tilted(flow, state, found)
    v, b = found.velocity, mobility(found.tokens)
    g = gradient(flow.tokens, Cloud(jnp.asarray(W.points, v.dtype)), found.tokens)
    slope = W.integral(found.rho * b * jnp.sum(v * v, -1))
    rate = -W.integral(found.rho * jnp.sum(g * v, -1))
    return slope, rate, W.integral(found.rho * jnp.sum(g * g, -1) / b)


def work(flow: DensityFlow, state: Density, found: OnGrid, dD: Float[Array, "h d d"]) -> Scalar:
    """½ Σ_h c̄_h ∫∫ e^{⟨x, D_h y⟩} ⟨x, dD_h y⟩ ρρ: what a change dD of the weights does to E, to first order."""
    W, m = _tilted(flow, state, found)
    assert found.tokens.tilted is not None
    x, c = jnp.asarray(W.points, m.dtype), head_average(found.tokens.layer)
    return 0.5 * W.integral(
        found.rho * jnp.einsum("h,hg,gk,hkl,hgl->g", c, m, x, dD, found.tokens.tilted.mean, optimize="optimal")
    )


def _tilted(flow: DensityFlow, state: Density, found: OnGrid) -> tuple[Waves, Float[Array, "h g"]]:
    """The grid, and m_h on it."""
    assert found.tokens.tilted is not None
    return flow.on(state), jnp.exp(found.tokens.tilted.log_m)


def _limit_energy(flow: InfiniteDensityFlow, state: Density, found: Potential) -> Scalar:
    """½∫φρ."""
    return 0.5 * flow.on(state).integral(found.rho * found.phi)


def _slope(flow: InfiniteDensityFlow, state: Density, found: Potential) -> Scalar:
    """∫|∇φ|²ρ: |R|, in the plain metric (the mobility of infinitely many heads has no closed form)."""
    return flow.on(state).integral(found.rho * jnp.sum(found.gradient**2, axis=0))
