"""Gradients of where a moment run ends, against differences, forward against reverse, fixed and adaptive."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.gaussian import Gaussian, MomentFlow
from jaxflow.weights import Piecewise

POINT = {
    "A": oracles.general(2, 3, 3, scale=0.4, seed=1),
    "b": oracles.general(2, 3, seed=2),
    "B": oracles.general(2, 1, 3, 3, scale=0.2, seed=3),
    "V": oracles.general(2, 1, 3, 3, scale=0.2, seed=4),
    "mean": oracles.general(3, seed=5),
    "factor": oracles.general(3, 2, scale=0.5, seed=6),
}
POINT = {name: jnp.asarray(x) for name, x in POINT.items()}
C, c = jnp.asarray(oracles.general(3, 3, seed=7)), jnp.asarray(oracles.general(3, seed=8))


def loss(p, **options):
    flow = MomentFlow(Piecewise(A=p["A"], b=p["b"], B=p["B"], V=p["V"], t1=1.0))
    end = run(flow, Gaussian(p["mean"], p["factor"]), t1=1.0, **options).final
    return jnp.sum(C * end.covariance) + jnp.sum(c * end.mean)


def moved(direction, t):
    return jax.tree.map(lambda x, d: x + t * d, POINT, direction)


DIRECTION = {name: jnp.asarray(oracles.general(*x.shape, seed=9)) for name, x in POINT.items()}
EACH = [{n: (1.0 if n == name else 0.0) * x for n, x in DIRECTION.items()} for name in POINT]


def inner(gradient, direction):
    return sum(float(jnp.sum(gradient[name] * direction[name])) for name in POINT)


@pytest.mark.parametrize(
    "options",
    [{"dt": 0.05}, pytest.param({"rtol": 1e-10, "atol": 1e-10}, marks=pytest.mark.slow)],
    ids=["fixed", "adaptive"],
)
def test_gradients_of_terminal_moments(options):
    value = eqx.filter_jit(lambda p: loss(p, **options))
    gradient = eqx.filter_jit(jax.grad(lambda p: loss(p, **options)))(POINT)
    forward = options if "dt" in options else {**options, "gradient": "forward"}
    push = eqx.filter_jit(lambda d: jax.jvp(lambda p: loss(p, **forward), (POINT,), (d,))[1])
    for direction in EACH:
        difference = oracles.derivative(lambda t, d=direction: float(value(moved(d, t))), 0.0, step=2e-3)
        np.testing.assert_allclose(inner(gradient, direction), difference, rtol=1e-6)
        np.testing.assert_allclose(push(direction), difference, rtol=1e-6)
    np.testing.assert_allclose(push(DIRECTION), inner(gradient, DIRECTION), rtol=1e-8)
