"""Ornstein–Uhlenbeck heads: the exact transition, in law and in composition, and the path a solve carries."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.errors import InputError
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.solve import Euler
from jaxflow.weights import OrnsteinUhlenbeck, random_heads

D0, MEAN, SIGMA2 = oracles.symmetric(2, 3), oracles.symmetric(1, 3, seed=1)[0], 1.3
W = OrnsteinUhlenbeck(initial=D0, mean=MEAN, noise_var=SIGMA2)
KEY = jax.random.key(3)


def test_mean_and_variance_of_the_transition():
    """E D(t) = D̄ + e^{−t}(D₀ − D̄); Var = (σ²/2)(1 − e^{−2t}), half of that off the diagonal."""
    t, n = 0.7, 100_000
    D = np.asarray(jax.vmap(lambda k: W.advance(jnp.asarray(D0), t, k))(jax.random.split(KEY, n)))
    var = SIGMA2 / 2 * (1 - np.exp(-2 * t))
    expected_var = np.broadcast_to(var * (0.5 + 0.5 * np.eye(3)), (2, 3, 3))
    mean = MEAN + np.exp(-t) * (D0 - MEAN)
    assert (np.abs(D.mean(0) - mean) < 4.5 * np.sqrt(expected_var / n)).all()
    assert (np.abs(D.var(0) / expected_var - 1) < 4.5 * np.sqrt(2 / n)).all()
    np.testing.assert_array_equal(D, D.swapaxes(-1, -2))
    # Heads, and entries of one head, are independent.
    z = (D - mean).reshape(n, 2, 9)[:, :, [0, 1, 2, 4, 5, 8]].reshape(n, 12)
    correlation = np.corrcoef(z.T) - np.eye(12)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(n)


def test_two_half_steps_are_one_step():
    """Chapman–Kolmogorov: the mean contracts by e^{−h} and the variances add up, exactly."""
    X, Y = jnp.asarray(D0), jnp.asarray(oracles.symmetric(2, 3, seed=5))
    h, mean = 0.8, jnp.broadcast_to(jnp.asarray(MEAN), (2, 3, 3))

    def contraction(h):
        return (W.advance(X, h, KEY) - W.advance(Y, h, KEY)) / (X - Y)

    def spread(h):
        # From the mean itself only noise moves the heads; the same key gives the same noise at every h.
        return (W.advance(mean, h, KEY) - mean) / (W.advance(mean, 1e3, KEY) - mean)

    np.testing.assert_allclose(contraction(h), np.exp(-h), rtol=1e-12)
    np.testing.assert_allclose(contraction(h / 2) ** 2, contraction(h), rtol=1e-12)
    np.testing.assert_allclose(spread(h) ** 2, 1 - np.exp(-2 * h), rtol=1e-12)
    np.testing.assert_allclose(spread(h / 2) ** 2 * (1 + contraction(h / 2) ** 2), spread(h) ** 2, rtol=1e-12)


def test_drift_pulls_towards_the_mean():
    np.testing.assert_allclose(W.drift(0.0), MEAN - D0, atol=1e-15)
    np.testing.assert_allclose(W.drift(0.0, jnp.asarray(2 * D0)), MEAN - 2 * D0, atol=1e-15)


def test_heads_may_have_means_of_their_own():
    means = oracles.symmetric(2, 3, seed=6)
    own = OrnsteinUhlenbeck(initial=D0, mean=means)
    np.testing.assert_allclose(own.drift(0.0), means - D0, atol=1e-15)


def test_random_heads_have_the_published_law():
    """D(0) = Z + Zᵀ: variance 4 on the diagonal, 2 off it."""
    D = np.asarray(random_heads(KEY, heads=50_000, dim=2))
    assert (np.abs(D.var(0) / [[4, 2], [2, 4]] - 1) < 4.5 * np.sqrt(2 / 50_000)).all()
    assert (np.abs(D.mean(0)) < 4.5 * np.sqrt(4 / 50_000)).all()
    np.testing.assert_array_equal(D, D.swapaxes(-1, -2))


def test_a_sampled_path_is_the_one_a_solve_carries():
    cloud = Cloud(jnp.asarray(oracles.unit_rows(4, 3)))
    ts = jnp.linspace(0.0, 0.5, 6)
    options = {"t1": 0.5, "dt": 0.1, "method": Euler(), "save_every": 1}
    random = run(AttentionFlow(W, direction="descend"), cloud, key=KEY, **options)
    path = W.sample(KEY, ts)
    fixed = run(AttentionFlow(path, direction="descend"), cloud, **options)
    np.testing.assert_allclose(random.states.points, fixed.states.points, atol=1e-13)
    np.testing.assert_array_equal(path.at(0.0).B, D0)
    other = run(AttentionFlow(W, direction="descend"), cloud, key=jax.random.key(4), **options)
    assert np.abs(other.final.points - random.final.points).max() > 1e-3


def test_ou_refuses():
    for bad in (0.0, -1.0):
        with pytest.raises(InputError, match="noise_var: must be positive"):
            OrnsteinUhlenbeck(initial=D0, mean=MEAN, noise_var=bad)
    with pytest.raises(InputError, match="mean: is not symmetric"):
        OrnsteinUhlenbeck(initial=D0, mean=oracles.general(3, 3))
    with pytest.raises(InputError, match="mean: has the wrong shape"):
        OrnsteinUhlenbeck(initial=D0, mean=np.eye(2))
