"""The energy balance along a run:

    E(t) − E(0) = ∫∂ₜE dt − ∫R dt + M_t

∂ₜE is the work of the changing weights (with the Itô term when they are noisy), R the rate of dissipation, M the
martingale of the noise. All integrals are extra components of the ODE, so they are as accurate as the solver. The
published balance puts G² in the place of R; it closes for one head only, and both are reported.
"""

from dataclasses import replace
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxflow._checks import check_symmetric
from jaxflow._typing import Real
from jaxflow.errors import InputError
from jaxflow.measures import Cloud
from jaxflow.particles.energy import dissipation, energy, energy_of, ito, upper_gradient, work
from jaxflow.particles.flow import AttentionFlow, Terms
from jaxflow.solve import AbstractObservable
from jaxflow.solve.observe import check_watched
from jaxflow.weights import AbstractRandom, AbstractSchedule, Layer


@final
class Balance(eqx.Module):
    """The balance at saved times t; every field has shape (t,).

    Attributes:
        energy: E.
        rate: R, the true −dE/dt at frozen weights. Negative when the flow raises the energy.
        slope: G², the published dissipation.
        gap: R − G² (R + G² for flows that ascend), zero when all heads see the same m_h.
        upper: |∂E|² = Σ_i w_i |g(x_i)|²/b̂(x_i), the squared upper gradient of E in the weighted metric.
        metric_derivative: |μ̇| = G, the speed in the weighted metric; R ≤ |∂E| |μ̇|.
        rate_integral, slope_integral: ∫R, ∫G² from 0 to t.
        dt_energy_integral: ∫∂ₜE, including the jumps of E where a piecewise schedule changes layer.
        deficit: ½∫|μ̇|² + ½∫|∂E|² − ∫R (+ ∫R for flows that ascend) ≥ 0: zero on curves of maximal slope, which those of
            the "steepest" law are (energy–dissipation equality).
        martingale: M.
        residual: E(t) − E(0) − ∫∂ₜE + ∫R − M: zero up to the error of the solver.
        slope_residual: the same with G² in the place of R (−G² for flows that ascend): the published balance.
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

    @property
    def metric_derivative(self) -> Float[Array, "*t"]:
        return jnp.sqrt(self.slope)


def published_sign(flow: AttentionFlow) -> float:
    """The sign of G² in the published balance: the energy falls by ∫G², or rises by it if the flow ascends."""
    return -1.0 if flow.direction == "ascend" else 1.0


class Integrals(NamedTuple):
    """What is integrated along with the tokens."""

    rate: Any
    slope: Any
    published: Any
    deficit: Any
    dt_energy: Any
    martingale: Any


@final
class EnergyBalance(AbstractObservable):
    """The observable behind `balance`."""

    def prepare(self, flow: Any, state: Any) -> Any:
        fix = "use jf.particles.limit_balance for InfiniteHeads, jf.gaussian.moments for moment flows"
        check_watched(flow, AttentionFlow, what="flows of tokens", fix=fix)
        layer = flow.weights.at(0.0)
        if layer.B is None:
            raise InputError("needs heads: without attention there is no energy", where="observe", got="A, b only")
        check_symmetric(layer.B, "weights.B", "the balance needs symmetric B; leave observe out for general heads")
        if flow.causal:
            raise InputError("needs every token to see every other", where="observe", got="causal attention")
        for given, why in (
            (flow.law == "hardmax", "hardmax has no partition m_h, and so no energy"),
            (flow.normalization in ("pre", "peri"), "E is the energy of tokens on the sphere or without normalisation"),
            (flow.kappa is not None, "noise on tokens adds terms that the balance does not have"),
        ):
            if given:
                raise InputError(f"does not apply: {why}", where="observe", got="balance", fix="leave observe out")
        weights = flow.weights
        noisy = isinstance(weights, AbstractRandom)
        if noisy and weights.amplitude(0.0).ndim > 1:
            raise InputError(
                "needs noise g·dW_sym with one number g for each head: its Itô term knows no other",
                where="weights.noise",
                got=f"an array {weights.amplitude(0.0).shape}",
                expected="() or (h,)",
                fix="leave observe out, or give one g for each head",
            )
        return replace(flow, second=noisy)

    def measure(
        self, flow: AttentionFlow, t: Real, state: Cloud, schedule: AbstractSchedule, noise: Any
    ) -> tuple[Array, Array, Array, Array, Array]:
        layer = schedule.at(t, noise)
        velocity, terms = flow.field(t, state, layer)
        slope, rate = dissipation(flow, state, velocity, terms)
        upper = upper_gradient(flow, state, terms)
        return energy_of(state, terms), slope, rate, rate - published_sign(flow) * slope, upper

    def rates(
        self,
        flow: AttentionFlow,
        t: Real,
        state: Cloud,
        schedule: AbstractSchedule,
        noise: Any,
        velocity: Float[Array, "n d"],
        terms: Terms,
    ) -> Integrals:
        slope, rate = dissipation(flow, state, velocity, terms)
        dt_energy = work(state, terms, schedule.drift(t, noise))
        if isinstance(schedule, AbstractRandom):
            dt_energy = dt_energy + ito(state, terms, schedule.amplitude(t, noise) ** 2)
        sign = published_sign(flow)
        deficit = (slope + upper_gradient(flow, state, terms)) / 2 - sign * rate
        return Integrals(rate, slope, sign * slope, deficit, dt_energy, jnp.zeros_like(rate))

    def jump(self, flow: AttentionFlow, t: Real, state: Cloud, before: Layer, after: Layer) -> Integrals:
        gain = energy(flow, state, after) - energy(flow, state, before)
        zero = jnp.zeros_like(gain)
        return Integrals(zero, zero, zero, zero, gain, zero)

    def kick(
        self,
        flow: AttentionFlow,
        t: Real,
        state: Cloud,
        schedule: AbstractRandom,
        noise: tuple[Array, Array],
        h: Real,
        terms: Terms,
    ) -> Integrals:
        before, after = noise
        shock = work(state, terms, schedule.shock(t, before, after, h))
        zero = jnp.zeros_like(shock)
        return Integrals(zero, zero, zero, zero, zero, shock)

    def report(self, measured: tuple[Array, Array, Array, Array, Array], integrals: Integrals) -> Balance:
        E, slope, rate, gap, upper = measured
        I = jax.tree.map(lambda x: x - x[0], integrals)
        change = E - E[0] - I.dt_energy - I.martingale
        return Balance(
            energy=E,
            rate=rate,
            slope=slope,
            gap=gap,
            upper=upper,
            rate_integral=I.rate,
            slope_integral=I.slope,
            dt_energy_integral=I.dt_energy,
            deficit=I.deficit,
            martingale=I.martingale,
            residual=change + I.rate,
            slope_residual=change + I.published,
        )


balance = EnergyBalance()
"""Observe energy, dissipation and their balance: `jf.solve(flow, tokens, t1=..., observe=jf.particles.balance)`."""
