"""Minimising movements, the JKO scheme (arXiv:2605.18870, §4):

    μ^{k+1} ∈ argmin over ν of  E(ν, t_{k+1}) + W_{m,2}²(ν, μ^k; Θ_{t_k})/(2τ)

in the form of particles: W² = Σ_i w_i b̂(x_i) d(x_i^k, x_i^{k+1})² with the mobility b̂ of μ^k ("frozen") or of the cloud
halfway ("implicit"). As τ → 0 the movement converges with order 1 to the flow of the law "steepest".
"""

from typing import Any, Literal, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxflow._checks import check_positive, check_same_dtype
from jaxflow._typing import Real, Scalar
from jaxflow.attention import Dense
from jaxflow.errors import InputError
from jaxflow.geometry import AbstractGeometry, Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, energy, mobility
from jaxflow.particles.energy import energy_of, upper_gradient
from jaxflow.particles.flow import Terms
from jaxflow.transport.action import step_action
from jaxflow.transport.implicit import minimum
from jaxflow.transport.minimise import Ended
from jaxflow.weights import AbstractSchedule, Layer
from jaxflow.weights.layer import Direction, sign_of

Mobility = Literal["frozen", "implicit"]


@final
class MinimisingMovement(eqx.Module):
    """The clouds of a JKO scheme, and how far they are from a curve of maximal slope.

    With k = 0..K−1 and F = E for "descend", F = −E for "ascend":

    Attributes:
        ts: t_0, …, t_K, (t,), equally spaced by at most τ.
        clouds: μ⁰, …, μ^K, a Cloud with a leading axis t.
        energies: E(μ^k, t_k), (t,).
        moved: W(μ^{k+1}, μ^k), (k,).
        speed: the metric derivative |μ̇| = W/τ, (k,).
        slope: the strong upper gradient |∂E|(μ^{k+1}, t_{k+1}) = (Σ_i w_i |g_i|²/b̂_i)^½, (k,).
        work: E(μ^k, t_{k+1}) − E(μ^k, t_k), what the change of the weights does, (k,).
        drop: F(μ^k, t_{k+1}) − F(μ^{k+1}, t_{k+1}), what the movement does, (k,).
        slack: drop − W²/(2τ) ≥ 0: the minimum is no higher than the value at ν = μ^k, (k,).
        deficit: Σ up to k of τ(speed² + slope²)/2 − drop, (k,): the energy–dissipation equality of curves of maximal
            slope says 0, and the scheme misses it by O(τ).
        optimality: norm of the gradient of E + W²/(2τ) at μ^{k+1} in the metric of W, in units of `slope`, (k,).
        iterations: Newton steps, (k,).
        status: an `Ended`: the worst of all steps.
    """

    ts: Float[Array, " t"]
    clouds: Cloud
    energies: Float[Array, " t"]
    moved: Float[Array, " k"]
    speed: Float[Array, " k"]
    slope: Float[Array, " k"]
    work: Float[Array, " k"]
    drop: Float[Array, " k"]
    slack: Float[Array, " k"]
    deficit: Float[Array, " k"]
    optimality: Float[Array, " k"]
    iterations: Int[Array, " k"]
    status: Any


def jko(
    tokens: Cloud,
    weights: AbstractSchedule,
    *,
    tau: float,
    t1: float,
    t0: float = 0.0,
    mobility: Mobility = "frozen",
    direction: Direction = "descend",
    geometry: AbstractGeometry | None = None,
    tolerance: float | None = None,
    max_iterations: int = 50,
) -> MinimisingMovement:
    """Minimising movements of the attention energy E = ½ Σ_h c̄_h Σ_ij w_i w_j e^{⟨D_h x_i, x_j⟩}, from t0 to t1.

    Works under jit, vmap, grad and jvp (derivatives by the implicit function theorem at every minimum, none of the
    iterations is differentiated). Nothing here is compiled as a whole: wrap repeated calls in `eqx.filter_jit`.

    Args:
        tokens: μ⁰, (n, d), weighted or not; unit vectors on the sphere.
        weights: tied heads D_h(t), any schedule that is not random. E takes them at t_{k+1}, the metric at t_k.
        tau: τ, the largest step; all are equal. In units of one layer's time.
        t0, t1: Python numbers.
        mobility: "frozen": b̂ of μ^k. "implicit": b̂ of the cloud halfway to ν, differentiated along with the rest,
            which is W_{m,2}² of short steps to third order; as costly.
        direction: "descend" minimises E (tokens repel for D = I), "ascend" minimises −E (they cluster).
        geometry: None or `Sphere()`: angles as distances. `Euclidean()`: straight lines.
        tolerance: of the optimality, times √E; None: 1e-10 in float64, 1e-4 in float32.
        max_iterations: Newton steps for each movement.

    Returns:
        A `MinimisingMovement`. Look at `status`: "optimal" is stationarity to `tolerance`. The minimum is over
        particles that keep their partners: W is an upper bound of the distance, and equal to it while steps are short.

    Raises:
        InputError: free or random heads, a feed-forward part, tokens off the sphere, mixed precisions, τ ≤ 0, t1 ≤ t0,
            an unknown mobility.

    Domain: for τ‖Hess E‖/b̂ < 1 the minimum is unique near μ^k; above, several may exist, and the one that descent from
    μ^k reaches is taken.

    Cost: O(h n² d) time and O(h n²) memory for E; a step takes some five Newton steps of about five products each.

    Source: arXiv:2605.18870, §4; Ambrosio, Gigli, Savaré, Gradient Flows (2008), ch. 2–3.
    """
    geometry = Sphere() if geometry is None else geometry
    flow = AttentionFlow(weights, law="steepest", direction=direction, geometry=geometry, kernel=Dense())
    _check(flow, tokens, tau=tau, t0=t0, t1=t1, mobility=mobility)
    dtype = tokens.points.dtype
    K = max(1, int(np.ceil((t1 - t0) / tau - 1e-9)))
    ts = jnp.asarray(np.linspace(t0, t1, K + 1), dtype)
    if tolerance is None:
        tolerance = 1e-10 if dtype == jnp.float64 else 1e-4
    scheme = _Scheme(flow, tokens.log_weights, jnp.asarray((t1 - t0) / K, dtype), mobility, tolerance, max_iterations)

    def step(x: Array, times: tuple[Array, Array]) -> tuple[Array, tuple[Array, _Step]]:
        made = scheme.step(x, weights.at(times[0]), weights.at(times[1]))
        return made.y, (x, made)

    last, (before, made) = jax.lax.scan(step, tokens.points, (ts[:-1], ts[1:]))
    points = jnp.concatenate([before, last[None]])
    log_weights = tokens.log_weights
    if log_weights is not None:
        log_weights = jnp.broadcast_to(log_weights, points.shape[:2])
    tau_k = scheme.tau
    speed = made.moved / tau_k
    return MinimisingMovement(
        ts=ts,
        clouds=Cloud(points, log_weights),
        energies=jnp.append(made.energy, made.energy_after[-1]),
        moved=made.moved,
        speed=speed,
        slope=made.slope,
        work=made.energy_before - made.energy,
        drop=made.drop,
        slack=made.drop - made.moved**2 / (2 * tau_k),
        deficit=jnp.cumsum(tau_k * (speed**2 + made.slope**2) / 2 - made.drop),
        optimality=made.optimality,
        iterations=made.iterations,
        status=_worst(made.status),
    )


class _Step(NamedTuple):
    """One movement: E(μ^k, t_k), E(μ^k, t_{k+1}), E(μ^{k+1}, t_{k+1}), and the rest."""

    y: Array
    energy: Scalar
    energy_before: Scalar
    energy_after: Scalar
    drop: Scalar
    moved: Scalar
    slope: Scalar
    optimality: Scalar
    iterations: Any
    status: Any


class _Scheme(eqx.Module):
    """What stays the same from step to step."""

    flow: AttentionFlow
    log_weights: Float[Array, " n"] | None
    tau: Scalar
    mobility: Mobility = eqx.field(static=True)
    tolerance: Real
    max_iterations: int = eqx.field(static=True)

    def step(self, x: Float[Array, "n d"], metric: Layer, layer: Layer) -> _Step:
        geometry, tau = self.flow.geometry, self.tau
        start = Cloud(x, self.log_weights)
        # Every cloud is tilted once by every layer it meets.
        seen = Terms(metric, self.flow.tilt(start, metric))
        b = mobility(seen)
        sign = -sign_of(self.flow.direction)

        def squared(y: Array) -> Scalar:
            if self.mobility == "implicit":
                return step_action(metric, x, y, start.log_w, geometry)
            return jnp.einsum("i,i,i->", start.weights, b, geometry.squared_distance(x, y))

        def objective(y: Array) -> Scalar:
            return sign * energy(self.flow, Cloud(y, self.log_weights), layer) + squared(y) / (2 * tau)

        before = energy(self.flow, start, layer)
        # In these coordinates the Hessian of W²/(2τ) is the identity.
        scale = jnp.sqrt(tau / (start.weights * b))[:, None]
        y, found = minimum(
            objective,
            geometry,
            x,
            scale,
            tolerance=self.tolerance * jnp.sqrt(tau * before),
            max_iterations=self.max_iterations,
        )
        end = Cloud(y, self.log_weights)
        arrived = Terms(layer, self.flow.tilt(end, layer))
        after, square = energy_of(end, arrived), squared(y)
        moving = square > 0
        return _Step(
            y=y,
            energy=energy_of(start, seen),
            energy_before=before,
            energy_after=after,
            drop=sign * (before - after),
            moved=jnp.where(moving, jnp.sqrt(jnp.where(moving, square, 1.0)), 0.0),
            slope=_root(upper_gradient(self.flow, end, arrived)),
            optimality=found.optimality / jnp.sqrt(tau),
            iterations=found.iterations,
            status=found.status,
        )


def _root(x: Scalar) -> Scalar:
    """√x with derivative 0 at 0."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)


def _worst(status: Any) -> Any:
    """One `Ended` for many."""
    worst = Ended.optimal
    for bad in (Ended.stalled, Ended.iterations, Ended.nonfinite):
        worst = Ended.where(jnp.any(status == bad), bad, worst)
    return worst


def _check(flow: AttentionFlow, tokens: Cloud, *, tau: float, t0: float, t1: float, mobility: str) -> None:
    flow.check(tokens)
    check_same_dtype({"tokens": tokens, "weights": flow.weights})
    if mobility not in ("frozen", "implicit"):
        raise InputError("is not known", where="mobility", got=mobility, expected='"frozen" or "implicit"')
    layer = flow.weights.at(0.0)
    if layer.A is not None or layer.b is not None:
        raise InputError("has no place in the energy", where="weights", got="a feed-forward A, b", fix="leave it out")
    if flow.random:
        raise InputError(
            "are random: a movement needs to see them at the end of its step",
            where="weights",
            got=type(flow.weights).__name__,
            fix="draw a path first: weights.sample(key, ts)",
        )
    check_positive(tau, "tau")
    if not t1 > t0:
        raise InputError("must lie after t0", where="t1", got=f"t0={t0}, t1={t1}")
