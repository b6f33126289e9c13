"""Flows with nothing symmetric about them, used by the tests of the solver."""

import jax.numpy as jnp
import oracles

from jaxflow.gaussian import MomentFlow
from jaxflow.measures import Cloud, Gaussian
from jaxflow.particles import AttentionFlow
from jaxflow.weights import Constant, Function, Oscillating, Piecewise, make_layer

A, b = oracles.general(3, 3, scale=0.3, seed=1), oracles.general(3, seed=2)
B, V = oracles.general(2, 3, 3, scale=0.3, seed=3), oracles.general(2, 3, 3, scale=0.3, seed=4)


def swinging(t):
    """A layer that depends on time in all four parts."""
    return make_layer(
        A=jnp.cos(3 * t) * A,
        b=jnp.sin(2 * t) * b,
        B=(1 + t) * jnp.asarray(B),
        V=jnp.cos(2 * t) * jnp.asarray(V),
    )


START = Gaussian(jnp.asarray([0.5, -1.0, 0.3]), jnp.asarray(oracles.general(3, 2, scale=0.6, seed=5)))
TOKENS = Cloud.from_weights(jnp.asarray(oracles.unit_rows(6, 3, seed=6)), jnp.asarray(oracles.weights(6)))

moments = MomentFlow(Function(swinging))
steady = MomentFlow(Constant(A=A, b=b, B=B, V=V))
on_sphere = AttentionFlow(Oscillating(initial=oracles.symmetric(2, 3), phase="spread"), direction="descend")
layered = MomentFlow(
    Piecewise(
        A=oracles.general(3, 3, 3, seed=7),
        b=oracles.general(3, 3, seed=8),
        B=oracles.general(3, 1, 3, 3, scale=0.4, seed=9),
        V=oracles.general(3, 1, 3, 3, scale=0.4, seed=10),
        durations=[0.3, 0.2, 0.5],
    )
)
