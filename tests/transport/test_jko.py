"""Minimising movements: single steps by SciPy, the steepest flow in the limit, the laws of curves of maximal slope."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from jaxflow.errors import InputError
from jaxflow.geometry import Euclidean, Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.solve import solve
from jaxflow.transport import jko, name_of
from jaxflow.weights import Constant, Function, OrnsteinUhlenbeck, make_layer

N = 6
TOKENS = Cloud.from_weights(jnp.asarray(oracles.unit_rows(N, 3, seed=11)), jnp.asarray(oracles.weights(N, seed=1)))
HEADS, RATE = (jnp.asarray(oracles.symmetric(2, 3, seed=seed)) for seed in (5, 6))


@eqx.filter_jit
def movement(tokens, heads, rate, **knobs):
    """Under heads D + t·rate."""
    return jko(tokens, Function(lambda t: make_layer(D=heads + t * rate)), **({"t1": 1.0} | knobs))


# --- one step -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mobility", "direction", "sphere"),
    [("frozen", "ascend", True), ("implicit", "descend", True), ("frozen", "descend", False)],
)
def test_a_step_is_the_minimum_that_scipy_finds(mobility, direction, sphere):
    """Three tokens in the plane, in angles on the circle: E(ν, t₁) by loops, b̂(t₀) by loops, W²/(2τ) on top."""
    n, tau = 3, 0.4
    heads, rate = (oracles.symmetric(2, 2, seed=seed) for seed in (7, 8))
    w, angle = oracles.weights(n, seed=2), np.array([0.3, 1.5, 4.0])
    sign = 1 if direction == "descend" else -1
    points = (lambda u: np.stack([np.cos(u), np.sin(u)], 1)) if sphere else (lambda u: u.reshape(n, 2))
    start = angle if sphere else points.__call__(oracles.general(n, 2, seed=9)).ravel()

    def objective(u):
        middle = points((u + start) / 2) if mobility == "implicit" else points(start)
        m = np.array([oracles.tilt(D, middle, w)[0] for D in heads])
        squares = ((u - start) ** 2).reshape(n, -1).sum(1)
        later = [(1.0, D) for D in heads + tau * rate]
        return sign * oracles.energy(points(u), w, later) + np.sum(w / np.mean(1 / m, axis=0) * squares) / (2 * tau)

    best = minimize(objective, start, method="BFGS", options={"gtol": 1e-9})
    tokens = Cloud.from_weights(jnp.asarray(points(start)), jnp.asarray(w))
    geometry = Sphere() if sphere else Euclidean()
    knobs = {"tau": tau, "t1": tau, "mobility": mobility, "direction": direction, "geometry": geometry}
    found = movement(tokens, jnp.asarray(heads), jnp.asarray(rate), **knobs)
    assert name_of(found.status) == "optimal"
    assert float(found.moved[0]) > 0.02
    np.testing.assert_allclose(found.clouds.points[-1], points(best.x), atol=2e-7)
    np.testing.assert_allclose(sign * found.energies[-1] + found.moved[0] ** 2 / (2 * tau), best.fun, rtol=1e-12)
    np.testing.assert_allclose(found.slack[0], objective(start) - best.fun, rtol=1e-9)


def test_without_a_step_the_optimality_is_the_slope():
    """At μ^k itself W² has no gradient, and what is left is that of E in the metric of W."""
    found = movement(TOKENS, HEADS, 0 * RATE, tau=0.25, t1=0.25, max_iterations=0)
    assert name_of(found.status) == "iterations"
    np.testing.assert_allclose(found.moved, 0, atol=1e-15)
    np.testing.assert_allclose(found.optimality, found.slope, rtol=1e-12)


# --- the limit ------------------------------------------------------------------------------------------------------

STEPS = np.array([16, 32, 64])


@pytest.fixture(scope="module")
def flow():
    weights = Function(lambda t: make_layer(D=HEADS + t * RATE))
    steepest = AttentionFlow(weights, law="steepest", direction="descend")
    return eqx.filter_jit(solve)(steepest, TOKENS, t1=1.0, dt=0.01).final.points


@pytest.fixture(scope="module")
def frozen():
    return [movement(TOKENS, HEADS, RATE, tau=1 / int(K)) for K in STEPS]


def slope_of(errors):
    """Slope of log error against log τ, and its standard error."""
    fit, covariance = np.polyfit(np.log(1 / STEPS), np.log(errors), 1, cov="unscaled")
    left = np.log(errors) - np.polyval(fit, np.log(1 / STEPS))
    return fit[0], np.sqrt(covariance[0, 0] * np.sum(left**2) / (len(STEPS) - 2))


def test_it_converges_to_the_steepest_flow_with_order_one(flow, frozen):
    """The slope of log error against log τ, with the standard error of the fit."""
    errors = [float(jnp.max(jnp.abs(m.clouds.points[-1] - flow))) for m in frozen]
    slope, uncertainty = slope_of(errors)
    assert uncertainty < 0.03
    assert abs(slope - 1) < 0.05, (slope, uncertainty, errors)
    # Order one is no coincidence of signs: extrapolated, the error has order two.
    last = 2 * frozen[-1].clouds.points[-1] - frozen[-2].clouds.points[-1]
    assert float(jnp.max(jnp.abs(last - flow))) < 0.05 * errors[-1]


def test_the_mobility_halfway_changes_the_error_little(flow, frozen):
    m = movement(TOKENS, HEADS, RATE, tau=1 / 16, mobility="implicit")
    ratio = jnp.max(jnp.abs(m.clouds.points[-1] - flow)) / jnp.max(jnp.abs(frozen[0].clouds.points[-1] - flow))
    assert 0.9 < float(ratio) < 1.1
    assert abs(float(ratio) - 1) > 1e-3


def test_energy_is_accounted_for_and_the_deficit_vanishes_with_order_one(frozen):
    """E(T) − E(0) = Σ work − Σ drop exactly; ½Σ τ(|μ̇|² + |∂E|²) misses the drop by O(τ)."""
    for m in frozen:
        np.testing.assert_allclose(m.energies[-1] - m.energies[0], jnp.sum(m.work) - jnp.sum(m.drop), atol=1e-14)
        assert float(jnp.min(m.slack)) > 0
        assert name_of(m.status) == "optimal"
    slope, uncertainty = slope_of([abs(float(m.deficit[-1])) for m in frozen])
    assert abs(slope - 1) < 0.15, (slope, uncertainty)
    # The speed is the upper gradient: Euler's equation of the minimum.
    np.testing.assert_allclose(frozen[-1].speed, frozen[-1].slope, rtol=0.1)


# --- every step -----------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0.1, 3.0))
def test_energy_never_rises_under_fixed_heads(seed, scale):
    """Also for steps far beyond the reach of the limit."""
    heads = jnp.asarray(oracles.symmetric(2, 3, scale=scale, seed=seed))
    tokens = Cloud(jnp.asarray(oracles.unit_rows(N, 3, seed=seed + 1)), TOKENS.log_weights)
    m = movement(tokens, heads, jnp.zeros_like(heads), tau=1 / 16)
    rounding = 1e-13 * float(m.energies[0])
    assert float(jnp.max(jnp.diff(m.energies))) <= rounding
    # E(μ^{k+1}) + W²/(2τ) ≤ E(μ^k), and W² itself by its definition.
    assert float(jnp.min(m.slack)) >= -rounding
    x, w = np.asarray(m.clouds.points), np.asarray(TOKENS.weights)
    b = 1 / np.mean([1 / oracles.tilt(D, x[0], w)[0] for D in np.asarray(heads)], axis=0)
    angles = 2 * np.arctan2(np.linalg.norm(x[1] - x[0], axis=1), np.linalg.norm(x[1] + x[0], axis=1))
    np.testing.assert_allclose(m.moved[0] ** 2, np.sum(w * b * angles**2), rtol=1e-9)
    np.testing.assert_allclose(m.speed, 16 * m.moved, rtol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1, rtol=1e-14)
    np.testing.assert_allclose(
        m.energies[-1], oracles.energy(x[-1], w, [(1.0, np.asarray(D)) for D in heads]), rtol=1e-12
    )


def test_the_upper_gradient_is_the_steepest_descent_of_energy(frozen):
    """|∂E|² = −dE/dt along the steepest law: differences of E along the velocity by loops."""
    m, t = frozen[0], 0.5
    x, w = np.asarray(m.clouds.points[8]), np.asarray(TOKENS.weights)
    heads = [np.asarray(D) for D in HEADS + t * RATE]
    v = oracles.velocity(x, w, [(0.5, D, -D) for D in heads], law="steepest")

    def along(h):
        y = x + h * v
        return oracles.energy(y / np.linalg.norm(y, axis=1, keepdims=True), w, [(1.0, D) for D in heads])

    np.testing.assert_allclose(m.slope[7] ** 2, -oracles.derivative(along, 0.0), rtol=1e-9)


# --- derivatives, words ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_derivatives_through_the_minima_against_differences():
    A = jnp.asarray(oracles.general(N, 3, seed=3))

    @jax.jit
    def along(s):
        x = Sphere().retract(TOKENS.points + s * A)
        m = jko(Cloud(x, TOKENS.log_weights), Constant(D=HEADS + s * RATE), tau=0.25, t1=0.5)
        return jnp.sum(A * m.clouds.points[-1]) + m.energies[-1] + m.moved[0]

    found = jax.jit(jax.grad(along))(0.2)
    np.testing.assert_allclose(found, oracles.derivative(along, 0.2, step=1e-3), rtol=1e-6)


def test_steps_that_run_out_are_reported_and_the_last_step_ends_at_t1():
    m = movement(TOKENS, HEADS, RATE, tau=0.3, max_iterations=1)
    assert name_of(m.status) == "iterations"
    assert int(jnp.max(m.iterations)) == 1
    assert float(jnp.max(m.optimality)) > 1e-6
    np.testing.assert_allclose(m.ts, [0, 0.25, 0.5, 0.75, 1.0], rtol=1e-15)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"tau": 0.0}, "must be positive"),
        ({"t1": 0.0}, "after t0"),
        ({"weights": Constant(B=jnp.eye(3), V=jnp.eye(3))}, "free heads"),
        ({"weights": Constant(D=jnp.eye(3), A=jnp.eye(3))}, "no place in the energy"),
        ({"weights": OrnsteinUhlenbeck(initial=jnp.eye(3), mean=jnp.eye(3))}, "random"),
        ({"tokens": Cloud(2 * TOKENS.points)}, "not on the sphere"),
        ({"tokens": Cloud(jnp.eye(3, dtype=jnp.float32))}, "precisions"),
    ],
)
def test_what_has_no_movement_is_refused(knobs, words):
    arguments = {"tokens": TOKENS, "weights": Constant(D=jnp.eye(3)), "tau": 0.1, "t1": 1.0} | knobs
    tokens, weights = arguments.pop("tokens"), arguments.pop("weights")
    with pytest.raises(InputError, match=words):
        jko(tokens, weights, **arguments)
