"""Clouds against densities: the law of their distance, along a flow too, and the rate in the number of tokens."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.attention import Harmonic
from jaxflow.errors import InputError
from jaxflow.meanfield import (
    Density,
    DensityFlow,
    cloud_distance,
    coefficients,
    fluctuations,
    sampling_distance,
)
from jaxflow.meanfield.waves import waves
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.weights import Constant

D = 4


def density(dim, degree=20):
    a = oracles.general(2, dim, scale=0.9, seed=dim)
    return Density.from_function(
        lambda x: jnp.exp(x @ a[0]) + 0.5 * jnp.exp(x @ a[1]), dim=dim, degree=degree, normalize=True
    )


@pytest.mark.parametrize("dim", [2, 3])
def test_independent_tokens_are_at_the_distance_of_the_closed_form(dim):
    """The trace of the covariance, and the mean over draws."""
    rho, n = density(dim), 500
    C = fluctuations(rho, degree=D)
    area = 2 * np.pi * (dim - 1)
    expected = float(sampling_distance(rho, n=n, degree=D))
    np.testing.assert_allclose(expected**2, area * np.trace(C) / (len(C) - 1) / n, rtol=1e-12)
    np.testing.assert_allclose(C[0], 0, atol=1e-14)
    draws = jax.vmap(lambda key: cloud_distance(rho.sample(key, n=n), rho, degree=D))
    found = jax.jit(draws)(jax.random.split(jax.random.key(0), 200))
    # Squares of about K normal numbers: a relative error of (2/200K)^{1/2}, and correlations add to it.
    assert abs(float(jnp.mean(found**2)) / expected**2 - 1) < 0.15
    one = cloud_distance(Cloud(jnp.eye(dim)), Density.uniform(dim=dim, degree=D), degree=D)
    assert float(one) > 0.5


def test_deviations_along_a_flow_have_the_covariance_of_the_linearised_equation():
    """Of 400 clouds of 200 tokens: ĉ(t) − c(t) has covariance Φ C Φᵀ/n, Φ the derivative of c(t) by c(0)."""
    rho, n, clouds, t1 = density(2), 200, 400, 0.5
    B, V = (np.eye(2) + oracles.general(2, 2, scale=0.3, seed=seed) for seed in (3, 4))
    weights = Constant(B=2 * B, V=1.2 * V)
    flow = DensityFlow(weights).settle(rho, 0.0, t1)
    assert run(flow, rho, t1=t1, dt=0.1).outcome == "done"

    @eqx.filter_jit
    def end(c):
        return run.__wrapped__(flow, Density(c, 2), t1=t1, dt=0.1).final.coefficients

    Phi = jax.jit(jax.jacfwd(end))(rho.coefficients)
    C = np.asarray(Phi @ fluctuations(rho, degree=rho.degree) @ Phi.T) / n
    tokens = AttentionFlow(weights)

    @eqx.filter_jit
    def deviations(keys):
        def one(key):
            sol = run.__wrapped__(tokens, rho.sample(key, n=n), t1=t1, dt=0.1)
            return coefficients(sol.final, D)

        return jax.lax.map(one, keys, batch_size=8)

    K = 2 * D + 1
    gaps = np.asarray(deviations(jax.random.split(jax.random.key(5), clouds))) - np.asarray(end(rho.coefficients))[:K]
    ratio = np.mean(gaps[:, 1:] ** 2, axis=0) / np.diag(C)[1:K]
    # 400 squares of normal numbers: standard error 0.07. Terms of second order in n^{-1/2} are below that.
    assert np.abs(ratio - 1).max() < 0.3, ratio
    assert abs(np.mean(ratio) - 1) < 0.12
    change = np.diag(C)[1:K] * n / np.diag(np.asarray(fluctuations(rho, degree=D)))[1:]
    assert change.max() > 1.5, change
    correlation = np.corrcoef(gaps[:, 1:].T)
    predicted = (C / np.sqrt(np.outer(np.diag(C) + 1e-300, np.diag(C) + 1e-300)))[1:K, 1:K]
    assert np.abs(correlation - predicted).max() < 0.25


def test_tokens_on_the_sphere_approach_the_density_like_one_over_the_root_of_their_number():
    """100 and 2500 tokens through `Harmonic`, twelve draws each: the exponent is −½ within four standard errors."""
    rho, t1 = density(3, 16), 0.3
    weights = Constant(D=oracles.symmetric(2, 3, scale=0.6, seed=5))
    knobs = {"t1": t1, "dt": 0.15}
    end = run(DensityFlow(weights, direction="descend").settle(rho, 0.0, t1), rho, **knobs).final
    flow = AttentionFlow(weights, direction="descend", kernel=Harmonic(2.0))
    ns, repeats = np.array([100, 2500]), 12
    found = np.zeros((len(ns), repeats))
    for i, n in enumerate(ns):

        @eqx.filter_jit
        def distances(keys, n=int(n)):
            def one(key):
                sol = run.__wrapped__(flow, rho.sample(key, n=n), **knobs)
                return cloud_distance(sol.final, end, degree=D)

            return jax.lax.map(one, keys)

        found[i] = distances(jax.random.split(jax.random.key(i), repeats))
    log_d, log_n = np.log(found).mean(1), np.log(ns)
    k = (log_n - log_n.mean()) / np.sum((log_n - log_n.mean()) ** 2)
    p, error = k @ log_d, np.sqrt(np.sum(k**2 * np.log(found).var(1, ddof=1) / repeats))
    assert error < 0.05
    assert abs(p + 0.5) < 4 * error, (p, error)
    # And of the size of independent samples, which a flow this short changes little.
    sampling = [float(sampling_distance(end, n=int(n), degree=D)) for n in ns]
    np.testing.assert_allclose(np.sqrt(np.mean(found**2, axis=1)) / sampling, 1, atol=0.35)


def test_a_cloud_that_is_a_quadrature_has_no_distance():
    rho = density(2)
    W = waves(2, 1, 40)
    x = jnp.asarray(W.points)
    cloud = Cloud.from_weights(x, jnp.asarray(W.weights) * rho(x))
    np.testing.assert_allclose(cloud_distance(cloud, rho, degree=D), 0, atol=1e-9)
    with pytest.raises(InputError, match="degree"):
        cloud_distance(cloud, rho, degree=0)
