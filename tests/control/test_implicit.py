"""The derivative of a solution in start and target, and attention alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxflow.control import Problem, advance, begin, steer
from jaxflow.control.implicit import respond
from jaxflow.geometry import Euclidean
from jaxflow.measures import Gaussian, sample
from jaxflow.particles import AttentionFlow
from jaxflow.solve import RK4, solve

OPTIONS = {"method": "gauss-newton", "learning_rate": 0.0, "iterations": 60}


def gaussian(seed, d=2, r=2):
    rng = np.random.default_rng(seed)
    return Gaussian(
        jnp.asarray(rng.normal(size=d)), jnp.asarray(rng.normal(size=(d, r)) / np.sqrt(d) + 0.4 * np.eye(d, r))
    )


def moved(pair, direction, h):
    return jax.tree.map(lambda x, u: x + h * u, pair, direction)


@pytest.mark.slow
@pytest.mark.parametrize("r", [1, 2])
def test_the_implicit_derivative_is_that_of_the_search_begun_at_the_solution(r):
    pair = gaussian(1, 2, r), gaussian(2, 2, r)
    rng = np.random.default_rng(3)
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), pair)

    def problem(pair):
        return Problem(*pair, 2, 1.0, "ABVb", jnp.asarray(0.0))

    @jax.jit
    def search(pair, controls):
        begun = begin(problem(pair), controls, **OPTIONS)
        return advance(problem(pair), begun, steps=60, tolerance=1e-13, **OPTIONS)[0].best

    found = search(pair, problem(pair).zero_controls())
    _, derivative = jax.jit(
        lambda pair, direction: jax.jvp(lambda pair: respond(problem(pair), found), (pair,), (direction,))
    )(pair, direction)

    def difference(h):
        ahead, behind = (search(moved(pair, direction, c), found) for c in (h, -h))
        return jax.tree.map(lambda x, y: (x - y) / (2 * h), ahead, behind)

    coarse, fine = difference(2e-3), difference(1e-3)
    for name, x in derivative.items():
        richardson = (4 * fine[name] - coarse[name]) / 3
        np.testing.assert_allclose(x, richardson, atol=2e-5 * float(jnp.abs(x).max() + 1))


@pytest.mark.slow
def test_a_hundred_thousand_tokens_land_on_the_target_of_the_moments():
    start, target = gaussian(4, 3, 3), gaussian(5, 3, 3)
    plan = eqx.filter_jit(steer)(start, target, segments=4, allow="Ab", method="gauss-newton", tolerance=1e-11)
    n = 100_000
    tokens = sample(start, jax.random.key(0), n=n)
    landed = solve(AttentionFlow(plan.weights, geometry=Euclidean()), tokens, t1=1.0, method=RK4(), dt=0.05).final
    # Standard errors of a sample mean and covariance: √(Σ_ii/n) and √((Σ_iiΣ_jj + Σ_ij²)/n).
    S = np.asarray(target.covariance)
    variances = np.diag(S)
    assert (np.abs(landed.mean - target.mean) < 5 * np.sqrt(variances / n)).all()
    spread = np.sqrt((np.outer(variances, variances) + S**2) / n)
    assert (np.abs(landed.covariance - S) < 5 * spread).all()


@pytest.mark.slow
def test_attention_without_bias_moves_mean_and_covariance():
    start, target = gaussian(6), gaussian(7)
    plan = eqx.filter_jit(steer)(start, target, segments=6, allow="BV", method="gauss-newton", tolerance=1e-11)
    assert plan.residual < 1e-10
    assert plan.weights.layers.A is None
    assert plan.weights.layers.b is None
