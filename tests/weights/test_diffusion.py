"""Heads under any drift and noise: against exact Ornstein–Uhlenbeck heads, and refined along one Brownian path."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.errors import InputError
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance
from jaxflow.particles.energy import ito
from jaxflow.solve import RK4, Euler, Tsit5, sample_weights, solve
from jaxflow.weights import Diffusion, OrnsteinUhlenbeck

D0, MEAN, SIGMA2 = oracles.symmetric(2, 3), oracles.symmetric(1, 3, seed=1)[0], 1.3
KEY = jax.random.key(3)
CLOUD = Cloud.from_weights(jnp.asarray(oracles.unit_rows(5, 3)), jnp.asarray(oracles.weights(5)))
OU = OrnsteinUhlenbeck(initial=D0, mean=MEAN, noise_var=SIGMA2)


def pull(t, D):
    return jnp.asarray(MEAN)[None] - D


def steady(t, D):
    return jnp.sqrt(jnp.asarray(SIGMA2))


def multiplicative(t, D):
    """One number for each head: it grows with the head and with depth."""
    return 0.3 * (1 + t) * jnp.sqrt(1 + jnp.sum(D * D, (1, 2)))


SAME = Diffusion(initial=D0, drift=pull, noise=steady)
OTHER = Diffusion(initial=D0, drift=lambda t, D: jnp.cos(t) * pull(t, D), noise=multiplicative)


def test_a_step_is_that_of_euler_and_maruyama():
    D, h, t = jnp.asarray(D0), 0.2, 0.7
    Z = np.asarray(jax.random.normal(KEY, D0.shape))
    S = (Z + Z.swapaxes(1, 2)) / 2
    g = 0.3 * (1 + t) * np.sqrt(1 + np.sum(D0**2, (1, 2)))
    expected = D0 + h * np.cos(t) * (MEAN - D0) + np.sqrt(h) * g[:, None, None] * S
    np.testing.assert_allclose(OTHER.advance(D, h, KEY, t), expected, atol=1e-14)
    np.testing.assert_allclose(
        OTHER.shock(t, D, jnp.asarray(expected), h), np.sqrt(h) * g[:, None, None] * S, atol=1e-14
    )
    entries = Diffusion(initial=D0, drift=pull, noise=lambda t, D: 1 + D * D)
    expected = D0 + h * (MEAN - D0) + np.sqrt(h) * (1 + D0**2) * S
    np.testing.assert_allclose(entries.advance(D, h, KEY, t), expected, atol=1e-14)


def test_mean_and_variance_of_ornstein_and_uhlenbeck():
    """Exactly those of the recursion D ← (1−h)D + hD̄ + σ√h S, which differ from the process's by O(h)."""
    n, steps, t = 10_000, 30, 0.6
    draw, h = jax.vmap(lambda key: SAME.sample(key, jnp.linspace(0.0, t, steps + 1)).layers.B[-1]), t / steps
    D = np.asarray(jax.jit(draw)(jax.random.split(KEY, n)))
    mean = MEAN + (1 - h) ** steps * (D0 - MEAN)
    var = SIGMA2 * h * np.sum((1 - h) ** (2 * np.arange(steps)))
    expected = np.broadcast_to(var * (0.5 + 0.5 * np.eye(3)), (2, 3, 3))
    assert (np.abs(D.mean(0) - mean) < 4.5 * np.sqrt(expected / n)).all()
    assert (np.abs(D.var(0) / expected - 1) < 4.5 * np.sqrt(2 / n)).all()
    assert abs(var / (SIGMA2 / 2 * (1 - np.exp(-2 * t))) - 1) < 1.1 * h
    np.testing.assert_allclose(D, D.swapaxes(-1, -2), atol=1e-13)


def test_steps_approach_the_exact_path_with_order_one():
    """Each step of both draws the same (Z + Zᵀ)/2; additive noise has strong order 1."""
    counts, keys = np.array([8, 64]), jax.random.split(KEY, 400)

    def miss(key, ts):
        return jnp.mean((SAME.sample(key, ts).layers.B[-1] - OU.sample(key, ts).layers.B[-1]) ** 2)

    draw = jax.jit(jax.vmap(miss, (0, None)))
    errors = [np.sqrt(np.mean(draw(keys, jnp.linspace(0.0, 0.6, k + 1)))) for k in counts]
    assert abs(oracles.order(0.6 / counts, errors) - 1) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "expected"), [(SAME, 1.0), (OTHER, 0.5)], ids=["additive", "multiplicative"])
def test_finer_steps_refine_one_brownian_path(weights, expected):
    """Strong orders 1 and ½, against steps 16 times finer than the finest."""
    keys, times = jax.random.split(KEY, 48), np.array([0.0, 0.25, 1.0])

    def end(dt):
        draw = jax.vmap(lambda key: sample_weights(weights, key, times, dt=dt).layers.B[-1])
        return np.asarray(jax.jit(draw)(keys))

    steps = np.array([1 / 8, 1 / 16, 1 / 32])
    reference = end(steps[-1] / 16)
    errors = [np.sqrt(np.mean((end(dt) - reference) ** 2)) for dt in steps]
    # The reference's own error tilts the slope of order ½ by about a tenth.
    assert abs(oracles.order(steps, errors) - expected) < 0.15
    np.testing.assert_allclose(reference, reference.swapaxes(-1, -2), atol=1e-13)


def test_a_path_drawn_beforehand_is_a_schedule():
    path = sample_weights(OTHER, KEY, [0.0, 0.1, 0.5], dt=0.05)
    np.testing.assert_array_equal(path.at(0.0).B, D0)
    np.testing.assert_array_equal(path.at(0.5).B, path.layers.V[-1])


@pytest.mark.slow
def test_a_path_along_the_brownian_tree_has_the_law_of_the_process():
    n, t = 2000, 0.6
    draw = jax.vmap(lambda key: sample_weights(SAME, key, [0.0, t], dt=0.02).layers.B[-1])
    D = np.asarray(jax.jit(draw)(jax.random.split(KEY, n)))
    var = SIGMA2 / 2 * (1 - np.exp(-2 * t)) * (0.5 + 0.5 * np.eye(3))[None]
    assert (np.abs(D.mean(0) - MEAN - np.exp(-t) * (D0 - MEAN)) < 4.5 * np.sqrt(var / n) + 0.01).all()
    assert (np.abs(D.var(0) / var - 1) < 4.5 * np.sqrt(2 / n) + 0.02).all()


def test_a_run_carries_the_sampled_path():
    options = {"t1": 0.5, "dt": 0.1, "method": Euler(), "save_every": 1}
    random = run(AttentionFlow(OTHER, direction="descend"), CLOUD, key=KEY, **options)
    path = OTHER.sample(KEY, jnp.linspace(0.0, 0.5, 6))
    fixed = run(AttentionFlow(path, direction="descend"), CLOUD, **options)
    np.testing.assert_allclose(random.states.points, fixed.states.points, atol=1e-13)


def reported(weights, dt, keys):
    flow = AttentionFlow(weights, direction="descend")
    draw = jax.vmap(lambda k: run(flow, CLOUD, t1=0.4, dt=dt, key=k, observe=balance).observables)
    return eqx.filter_jit(draw)(keys)


@pytest.mark.slow
def test_the_balance_of_ornstein_and_uhlenbeck_is_the_same():
    keys = jax.random.split(KEY, 2)
    same, exact = reported(SAME, 0.004, keys), reported(OU, 0.004, keys)
    for name in ("energy", "dt_energy_integral", "martingale"):
        np.testing.assert_allclose(getattr(same, name), getattr(exact, name), atol=0.02, err_msg=name)
    assert float(jnp.abs(exact.martingale[:, -1]).min()) > 0.1


@pytest.mark.slow
def test_the_balance_closes_with_noise_that_depends_on_depth_and_head():
    """The mean square of the residual shrinks with the step, over 64 keys; without the Itô term it would not."""
    keys = jax.random.split(jax.random.key(1), 64)
    coarse, fine = (reported(OTHER, dt, keys) for dt in (0.05, 0.0125))
    ratio = float(jnp.mean(coarse.residual[:, -1] ** 2) / jnp.mean(fine.residual[:, -1] ** 2))
    assert 2.0 < ratio < 40.0
    change = fine.energy[:, -1] - fine.energy[:, 0]
    assert float(jnp.mean(fine.residual[:, -1] ** 2)) < 0.02 * float(jnp.mean(change**2))


def test_the_second_order_term_counts_each_head_by_its_own_noise():
    flow = dataclasses.replace(AttentionFlow(SAME, direction="descend"), second=True)
    _, terms = flow.field(0.0, CLOUD, flow.weights.at(0.0))
    one, other = (float(ito(CLOUD, terms, jnp.asarray(v))) for v in ([1.0, 0.0], [0.0, 1.0]))
    np.testing.assert_allclose(ito(CLOUD, terms, jnp.asarray([0.3, 2.0])), 0.3 * one + 2 * other, rtol=1e-13)
    np.testing.assert_allclose(ito(CLOUD, terms, jnp.asarray(1.7)), 1.7 * (one + other), rtol=1e-13)
    assert one != other


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match=r"drift: does not fit the heads(.|\n)*\(3, 3\)"):
        Diffusion(initial=D0, drift=lambda t, D: D[0], noise=steady)
    with pytest.raises(InputError, match=r"noise: does not fit the heads(.|\n)*\(3,\)"):
        Diffusion(initial=D0, drift=pull, noise=lambda t, D: D[0, 0])
    with pytest.raises(InputError, match="drift: is not symmetric"):
        Diffusion(initial=D0, drift=lambda t, D: D * jnp.arange(3.0)[None, :, None], noise=steady)
    with pytest.raises(InputError, match="noise: is not symmetric"):
        Diffusion(initial=D0, drift=pull, noise=lambda t, D: D * jnp.arange(3.0)[None, :, None])
    flow = AttentionFlow(SAME, direction="descend")
    for method, options in ((Tsit5(), {}), (RK4(), {"dt": 0.1})):
        with pytest.raises(InputError, match=r"method: does not apply to random weights(.|\n)*Euler\(\)"):
            solve(flow, CLOUD, t1=1.0, method=method, key=KEY, **options)
    with pytest.raises(InputError, match="key: is needed: the weights are random"):
        solve(flow, CLOUD, t1=1.0, dt=0.1)
    entries = AttentionFlow(Diffusion(initial=D0, drift=pull, noise=lambda t, D: 1 + D * D), direction="descend")
    with pytest.raises(InputError, match=r"weights\.noise: needs noise g·dW_sym with one number"):
        solve(entries, CLOUD, t1=1.0, dt=0.1, key=KEY, observe=balance)
    with pytest.raises(InputError, match="ts: must be at least two increasing times"):
        sample_weights(SAME, KEY, [0.0, 0.0], dt=0.1)
    with pytest.raises(InputError, match="dt: is finer than the Brownian path"):
        sample_weights(SAME, KEY, [0.0, 1.0], dt=1e-6)
