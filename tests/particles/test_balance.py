"""The energy balance: it closes with R for every number of heads, and with G² for one only."""

import dataclasses
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from scipy.integrate import simpson

from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance
from jaxflow.particles.energy import ito, work
from jaxflow.solve import RK4, Euler
from jaxflow.weights import AbstractRandom, Constant, OrnsteinUhlenbeck, Oscillating, Piecewise

CLOUD = Cloud.from_weights(jnp.asarray(oracles.unit_rows(8, 3)), jnp.asarray(oracles.weights(8)))
TIGHT = {"t1": 2.0, "rtol": 1e-10, "atol": 1e-10}


def heads(h):
    return oracles.symmetric(h, 3, scale=1.2, seed=11)


def reported(flow, **options):
    sol = run(flow, CLOUD, observe=balance, **options)
    assert sol.outcome == "done"
    return sol.observables


@pytest.mark.parametrize("h", [1, 2, 5, 20])
def test_the_balance_closes_with_the_rate_for_every_number_of_heads(h):
    # Heads without mass are no heads: one compiled program serves every h.
    mass = np.where(np.arange(20) < h, 1 / h, 0.0)
    r = reported(AttentionFlow(Constant(D=heads(20), mass=mass), direction="descend"), **TIGHT)
    drop = abs(float(r.energy[-1] - r.energy[0]))
    assert drop > 0.02
    assert abs(float(r.residual[-1])) < 1e-7 * drop
    if h == 1:
        np.testing.assert_allclose(r.slope, r.rate, rtol=1e-12)
        np.testing.assert_allclose(r.gap, 0, atol=1e-13)
        assert abs(float(r.slope_residual[-1])) < 1e-7 * drop
    else:
        # The published balance, with G², misses a sizeable part of the drop.
        assert abs(float(r.slope_residual[-1])) > 0.02 * drop
        np.testing.assert_allclose(r.gap, r.rate - r.slope, rtol=1e-15)
        np.testing.assert_allclose(
            r.slope_residual - r.residual, r.slope_integral - r.rate_integral, rtol=1e-10, atol=1e-14
        )


def test_under_steepest_descent_both_balances_close():
    masses = [0.1, 0.5, 0.2, 0.3, 0.4]  # their sum, 1.5, must not matter
    r = reported(AttentionFlow(Constant(D=heads(5), mass=masses), law="steepest", direction="descend"), **TIGHT)
    drop = abs(float(r.energy[-1] - r.energy[0]))
    assert abs(float(r.residual[-1])) < 1e-7 * drop
    assert abs(float(r.slope_residual[-1])) < 1e-7 * drop
    np.testing.assert_allclose(r.slope, r.rate, rtol=1e-12)


@pytest.mark.parametrize("direction", ["descend", "ascend"])
def test_energy_dissipation_equality_holds_on_curves_of_maximal_slope_only(direction):
    """½∫|μ̇|² + ½∫|∂E|² = ±(E(0) − E(t)) under the steepest law; under softmax the left side is larger, by
    ½∫ Σ w b̂ |v ± g/b̂|²."""
    sign, times = 1 if direction == "descend" else -1, np.linspace(0.0, 2.0, 65)
    for law in ("steepest", "softmax"):
        flow = AttentionFlow(Constant(D=heads(5)), law=law, direction=direction)
        r = reported(flow, **TIGHT, save_at=times.tolist())
        drop = sign * float(r.energy[0] - r.energy[-1])
        both = simpson((r.metric_derivative**2 + r.upper) / 2, x=times)
        np.testing.assert_allclose(r.deficit[-1], both - drop, atol=1e-6 * abs(drop))
        if law == "steepest":
            assert drop > 0.05
            assert abs(float(r.deficit[-1])) < 1e-7 * drop
            np.testing.assert_allclose(r.upper, r.slope, rtol=1e-11)
        else:
            assert r.deficit[-1] > 0.01 * abs(drop)
            assert (np.diff(r.deficit) > 0).all()


def test_the_unnormalized_law_closes_the_balance_too():
    flow = AttentionFlow(Constant(D=heads(2)), law="unnormalized", direction="ascend")
    r = reported(flow, t1=0.5, dt=5e-3)
    assert float(r.energy[-1] - r.energy[0]) > 0.1
    assert abs(float(r.residual[-1])) < 1e-7 * float(r.energy[-1] - r.energy[0])


def jumping():
    D = heads(6).reshape(3, 2, 3, 3)
    return AttentionFlow(Piecewise(D=D, durations=[0.7, 0.5, 0.8]), direction="descend")


@pytest.mark.parametrize("options", [TIGHT, {"t1": 2.0, "dt": 0.011}], ids=["adaptive", "fixed"])
def test_the_jumps_of_a_piecewise_schedule_are_in_the_balance(options):
    """∂ₜE of piecewise-constant weights is a sum of jumps, E after minus E before each change of layer."""
    flow = jumping()
    r = reported(flow, **options, save_at=[0.0, 0.7, 1.0, 1.2, 1.6, 2.0])
    drop = float(jnp.ptp(r.energy))
    assert np.abs(r.residual).max() < 1e-7 * drop
    # At an edge the layer that ends there is meant: its jump comes right after.
    np.testing.assert_allclose(r.dt_energy_integral[:2], 0.0, atol=1e-15)
    assert np.abs(np.diff(r.dt_energy_integral))[[1, 3]].min() > 1e-3
    np.testing.assert_allclose(np.diff(r.dt_energy_integral)[[2, 4]], 0, atol=1e-12)


def test_a_run_that_starts_at_an_edge_begins_without_a_jump():
    flow = jumping()
    for options in ({"dt": 0.01}, {"rtol": 1e-10, "atol": 1e-10}):
        r = reported(flow, t0=0.7, t1=1.2, **options)
        np.testing.assert_allclose(r.dt_energy_integral, 0.0, atol=1e-12)
        assert abs(float(r.residual[-1])) < 1e-8


@pytest.mark.parametrize("options", [TIGHT, {"t1": 2.0, "dt": 0.01, "method": RK4()}], ids=["adaptive", "fixed"])
def test_the_balance_closes_with_oscillating_weights(options):
    flow = AttentionFlow(Oscillating(initial=heads(2), phase="spread"), direction="descend")
    r = reported(flow, **options)
    assert abs(float(r.dt_energy_integral[-1])) > 0.1
    assert abs(float(r.residual[-1])) < 1e-7 * abs(float(r.energy[-1] - r.energy[0]))
    np.testing.assert_array_equal(r.martingale, 0)


NOISY = AttentionFlow(OrnsteinUhlenbeck(initial=heads(2), mean=np.eye(3), noise_var=0.8), direction="descend")


def test_the_balance_of_noisy_weights_closes_as_the_step_shrinks():
    """The residual of Euler's method shrinks with the step: mean squares over 64 keys."""
    keys = jax.random.split(jax.random.key(1), 64)

    def squares(dt):
        f = eqx.filter_jit(jax.vmap(lambda k: run(NOISY, CLOUD, t1=0.5, dt=dt, key=k, observe=balance).observables))
        r = f(keys)
        return r, float(jnp.mean(r.residual[:, -1] ** 2))

    _, coarse = squares(0.05)
    r, fine = squares(0.0125)
    change = r.energy[:, -1] - r.energy[:, 0]
    assert 3.0 < coarse / fine < 30.0
    assert fine < 0.02 * float(jnp.mean(change**2))
    # The martingale has mean zero: within 4 standard errors, and it is not small.
    m = np.asarray(r.martingale[:, -1])
    assert abs(m.mean()) < 4 * m.std() / 8
    assert m.std() > 0.05


@final
class Replay(AbstractRandom):
    """Ornstein–Uhlenbeck heads that follow a path drawn beforehand on a fine grid, whatever the steps of the run."""

    weights: OrnsteinUhlenbeck
    path: jax.Array
    fine: float = eqx.field(static=True)

    @property
    def initial(self):
        return self.weights.initial

    @property
    def edges(self):
        return self.weights.edges

    def drift(self, t, state=None):
        return self.weights.drift(t, state)

    def amplitude(self, t, state=None):
        return self.weights.amplitude(t, state)

    def advance(self, state, h, key, t=0.0):
        return self.path[jnp.round((t + h) / self.fine).astype(int)]


def test_the_balance_closes_at_the_strong_order_along_one_brownian_path():
    """Every run follows the same heads, seen at its own steps.

    A step leaves ½∂²E (ΔD ΔD − E ΔD ΔD) = O(h) of mean zero out of the balance, 1/h of them add up to O(√h): order ½.
    The tokens are moved by heads that are exact at every step: order 1. Root mean squares over 64 paths.
    """
    t1, fine, steps = 0.5, 0.5 / 512, 0.5 / np.array([8, 32, 128])
    grid, keys = jnp.linspace(0.0, t1, 513), jax.random.split(jax.random.key(8), 64)

    def along(path, dt):
        flow = dataclasses.replace(NOISY, weights=Replay(NOISY.weights, path, fine))
        sol = run(flow, CLOUD, t1=t1, dt=dt, key=keys[0], method=Euler(), observe=balance, save_at=[0.0, t1])
        return sol.final.points, sol.observables.residual[-1], sol.observables.energy[-1]

    paths = jax.jit(jax.vmap(lambda key: NOISY.weights.sample(key, grid).layers.B))(keys)
    runs = [jax.jit(jax.vmap(lambda p, k=k: along(p, t1 / k)))(paths) for k in (8, 32, 128, 512)]
    points, residuals, energies = zip(*runs)
    size = [float(jnp.sqrt(jnp.mean(x**2))) for x in residuals]
    miss = [float(jnp.sqrt(jnp.mean((x - points[-1]) ** 2))) for x in points[:-1]]
    assert abs(oracles.order(steps, size[:-1]) - 0.5) < 0.1
    assert size[-1] < 0.05 * float(jnp.std(energies[-1]))
    assert abs(oracles.order(steps, miss) - 1) < 0.2


def test_one_noisy_step_changes_the_energy_by_drift_and_ito_term():
    """E[E(D(h)) − E(D₀)]/h → work(D̄ − D₀) + Itô, tokens held still; noise of both signs removes M."""
    flow = dataclasses.replace(NOISY, second=True)
    layer = flow.weights.at(0.0)
    _, terms = flow.field(0.0, CLOUD, layer)
    ou, h, n = flow.weights, 1e-4, 40_000
    w = CLOUD.weights
    centre = ou.mean + jnp.exp(-h) * (layer.B - ou.mean)

    def E(D):
        s = jnp.einsum("id,hde,je->hij", CLOUD.points, D, CLOUD.points)
        return 0.5 * jnp.mean(jnp.einsum("i,j,hij->h", w, w, jnp.exp(s)))

    def pair(key):
        D = ou.advance(layer.B, h, key)
        return (E(D) + E(2 * centre - D)) / 2 - E(layer.B)

    rates = np.asarray(jax.jit(jax.vmap(pair))(jax.random.split(jax.random.key(0), n))) / h
    drift, second = work(CLOUD, terms, ou.drift(0.0)), ito(CLOUD, terms, ou.noise_var)
    assert abs(rates.mean() - float(drift + second)) < 4 * rates.std() / np.sqrt(n) + 1e-3 * abs(float(drift))
    assert abs(float(second)) > 20 * rates.std() / np.sqrt(n)


def test_integrals_start_at_the_first_saved_time_and_add_up():
    flow = AttentionFlow(Constant(D=heads(2)), direction="descend")
    r = reported(flow, t1=1.0, dt=0.01, save_every=25, method=RK4())
    np.testing.assert_allclose(r.rate_integral[0], 0)
    trapezoid = np.cumsum((r.rate[1:] + r.rate[:-1]) / 2 * 0.25)
    np.testing.assert_allclose(r.rate_integral[1:], trapezoid, rtol=0.02)
    np.testing.assert_allclose(r.energy[0] - r.energy, r.rate_integral, atol=1e-9)


def test_euler_on_frozen_noise_equals_the_noisy_run():
    """The martingale and drift of one path, recomputed from the recorded heads."""
    key, dt = jax.random.key(5), 0.1
    r = reported(NOISY, t1=0.3, dt=dt, key=key, save_every=1, method=Euler())
    path = NOISY.weights.sample(key, jnp.linspace(0.0, 0.3, 4))
    sol = run(NOISY, CLOUD, t1=0.3, dt=dt, key=key, save_every=1, method=Euler())
    flow = dataclasses.replace(NOISY, second=True)
    martingale, drift = 0.0, 0.0
    for i in range(3):
        state = Cloud(sol.states.points[i], CLOUD.log_weights)
        D, after = path.layers.B[i], path.layers.B[i + 1]
        layer = flow.weights.at(0.0, D)
        _, terms = flow.field(0.0, state, layer)
        pull = flow.weights.drift(0.0, D)
        drift += dt * (work(state, terms, pull) + ito(state, terms, flow.weights.noise_var))
        martingale += work(state, terms, after - D - dt * pull)
        np.testing.assert_allclose(r.martingale[i + 1], martingale, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(r.dt_energy_integral[i + 1], drift, rtol=1e-12)
