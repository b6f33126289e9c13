"""Gradients of where tokens end, against differences, forward against reverse, fixed and adaptive."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.attention import Chunked, Dense
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.weights import Function, Layer

POINT = {
    "D": jnp.asarray(oracles.symmetric(2, 3, seed=1)),
    "A": jnp.asarray(oracles.general(3, 3, scale=0.5, seed=2)),
    "b": jnp.asarray(oracles.general(3, scale=0.5, seed=3)),
    "start": jnp.asarray(oracles.general(5, 3, seed=4)),
}
DIRECTION = {name: jnp.asarray(oracles.general(*x.shape, seed=9)) for name, x in POINT.items()}
DIRECTION["D"] = DIRECTION["D"] + DIRECTION["D"].swapaxes(1, 2)
C = jnp.asarray(oracles.general(5, 3, seed=7))


class Steady(eqx.Module):
    """A tied layer with feed-forward, as a function of time, so that its matrices can be traced."""

    D: jax.Array
    A: jax.Array
    b: jax.Array

    def __call__(self, t):
        return Layer(B=self.D, V=self.D, A=self.A, b=self.b, mass=jnp.full(2, 0.5), tied=True)


def loss(p, kernel, **options):
    flow = AttentionFlow(Function(Steady(p["D"], p["A"], p["b"])), direction="descend", kernel=kernel)
    end = run(flow, Cloud(Sphere().retract(p["start"])), t1=1.0, **options).final
    return jnp.sum(C * end.points)


def moved(direction, t):
    return jax.tree.map(lambda x, d: x + t * d, POINT, direction)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (Chunked(block=2), {"dt": 0.05}),
        pytest.param(Dense(), {"rtol": 1e-10, "atol": 1e-10}, marks=pytest.mark.slow),
    ],
    ids=["fixed", "adaptive"],
)
def test_gradients_of_terminal_tokens(kernel, options):
    value = eqx.filter_jit(lambda p: loss(p, kernel, **options))
    gradient = eqx.filter_jit(jax.grad(lambda p: loss(p, kernel, **options)))(POINT)
    forward = options if "dt" in options else {**options, "gradient": "forward"}
    push = eqx.filter_jit(lambda d: jax.jvp(lambda p: loss(p, kernel, **forward), (POINT,), (d,))[1])
    for name in POINT:
        direction = {n: (1.0 if n == name else 0.0) * x for n, x in DIRECTION.items()}
        difference = oracles.derivative(lambda t, d=direction: float(value(moved(d, t))), 0.0, step=5e-3)
        reverse = sum(float(jnp.sum(gradient[n] * direction[n])) for n in POINT)
        np.testing.assert_allclose(reverse, difference, rtol=1e-6)
        np.testing.assert_allclose(push(direction), reverse, rtol=1e-8)
