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
from jaxflow.particles import AttentionFlow, balance, octahedral
from jaxflow.solve import RK4, Euler, solve
from jaxflow.weights import Constant, Function, Layer, OrnsteinUhlenbeck, random_heads

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
    forward = options if "dt" in options else {**options, "gradient": "forward"}
    check_gradients(lambda p: loss(p, kernel, **options), lambda p: loss(p, kernel, **forward))


@pytest.mark.parametrize("noisy", [False, True], ids=["constant", "noise"])
def test_gradients_of_every_term_of_the_balance(noisy):
    """E, R, G² and the integrals at t1, in D, A, b and the start; with noise along one path of the heads."""

    def terms(p):
        if noisy:
            weights = OrnsteinUhlenbeck(initial=p["D"], mean=jnp.eye(3), A=p["A"], b=p["b"])
        else:
            weights = Function(Steady(p["D"], p["A"], p["b"]))
        options = {"method": Euler(), "key": jax.random.key(3)} if noisy else {}
        flow, start = AttentionFlow(weights, direction="descend"), Cloud(Sphere().retract(p["start"]))
        r = run(flow, start, t1=0.5, dt=0.05, observe=balance, **options).observables
        values = (r.energy, r.rate, r.slope, r.rate_integral, r.slope_integral, r.dt_energy_integral, r.martingale)
        return sum(c * x[-1] for c, x in zip(oracles.general(7, seed=5), values))

    check_gradients(terms, terms)


def check_gradients(of_reverse, of_forward):
    """Reverse mode against differences, and forward against reverse mode, in every parameter."""
    value, gradient = jax.jit(of_reverse), jax.jit(jax.grad(of_reverse))(POINT)
    push = jax.jit(lambda d: jax.jvp(of_forward, (POINT,), (d,))[1])
    for name in POINT:
        direction = {n: (1.0 if n == name else 0.0) * x for n, x in DIRECTION.items()}
        difference = oracles.derivative(lambda t, d=direction: float(value(moved(d, t))), 0.0, step=5e-3)
        reverse = sum(float(jnp.sum(gradient[n] * direction[n])) for n in POINT)
        np.testing.assert_allclose(reverse, difference, rtol=1e-6)
        np.testing.assert_allclose(push(direction), reverse, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("noisy", [True, False])
def test_the_gradient_of_a_long_run_takes_little_memory(noisy):
    """4000 steps at n = 200, H = 10: kept whole, the pairs of all steps would take 13 GB. The same program over 40
    steps is right, by differences along a random direction."""
    cloud, D = octahedral(jax.random.key(1), n=200), random_heads(jax.random.key(0), heads=10, dim=3)

    def observable(D, points, steps):
        D = (D + jnp.swapaxes(D, 1, 2)) / 2
        weights = OrnsteinUhlenbeck(initial=D, mean=jnp.eye(3)) if noisy else Constant(D=D)
        flow = AttentionFlow(weights, direction="descend")
        method, key = (Euler(), jax.random.key(2)) if noisy else (RK4(), None)
        sol = solve(flow, Cloud(Sphere().retract(points)), t1=5e-3 * steps, dt=5e-3, method=method, key=key)
        return jnp.sum(sol.final.points[:, 0] ** 3)

    def gradient(steps):
        return jax.jit(jax.grad(lambda D, points: observable(D, points, steps), argnums=(0, 1)))

    memory = gradient(4000).lower(D, cloud.points).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2**31

    dD, dx = jax.random.normal(jax.random.key(3), D.shape), jax.random.normal(jax.random.key(4), cloud.points.shape)
    gD, gx = gradient(40)(D, cloud.points)
    along = jax.jit(lambda s: observable(D + s * dD, cloud.points + s * dx, 40))
    np.testing.assert_allclose(
        jnp.sum(gD * dD) + jnp.sum(gx * dx), oracles.derivative(along, 0.0, step=1e-3), rtol=1e-7
    )
