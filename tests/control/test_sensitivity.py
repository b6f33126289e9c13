"""Derivatives of all steps side by side are those of the path; a batch of searches waits for nobody."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxflow.control import Problem
from jaxflow.control.expansion import row_by_row, side_by_side
from jaxflow.control.ground import Ground
from jaxflow.control.sensitivity import Sides, flatten, product, pulled, unflatten, velocity
from jaxflow.gaussian import MomentFlow
from jaxflow.measures import Gaussian
from jaxflow.solve.one_by_one import one_by_one
from jaxflow.weights import Constant, make_layer


def sides(rng, d, h, n):
    return Sides(*(jnp.asarray(rng.normal(size=x)) for x in ((d, d, n), (d, n), (h, d, d, n), (h, d, d, n))))


def test_the_velocity_on_lanes_is_that_of_the_moment_flow():
    rng = np.random.default_rng(0)
    u, y = sides(rng, 3, 2, 4), jnp.asarray(rng.normal(size=(3, 3, 4)))
    found, _, _ = velocity(u, y)
    for i in range(4):
        layer = make_layer(A=u.A[..., i], b=u.b[..., i], V=u.V[..., i], B=u.B[..., i])
        flow = MomentFlow(Constant(A=layer.A, b=layer.b, V=layer.V, B=layer.B))
        (dmu, dL), _ = flow.field(0.0, Gaussian(y[:, -1, i], y[:, :-1, i]), layer)
        np.testing.assert_allclose(found[:, -1, i], dmu, rtol=1e-13)
        np.testing.assert_allclose(found[:, :-1, i], dL, rtol=1e-13)


def test_the_adjoint_pairs_with_every_change_of_state_and_layer():
    """⟨p, dẏ⟩ = ⟨q, dy⟩ + ⟨g, du⟩ for random changes of all entries at once."""
    rng = np.random.default_rng(1)
    u, du, y, dy, p = (
        sides(rng, 3, 2, 4),
        sides(rng, 3, 2, 4),
        *(jnp.asarray(rng.normal(size=(3, 3, 4))) for _ in "ydp"),
    )
    change = jax.jvp(lambda u, y: velocity(u, y)[0], (u, y), (du, dy))[1]
    q, g = pulled(u, y, p)
    both = jnp.sum(q * dy, (0, 1)) + jnp.sum(flatten(g) * flatten(du), 1)
    np.testing.assert_allclose(jnp.sum(p * change, (0, 1)), both, rtol=1e-12)


@pytest.mark.parametrize("d", [3, 9])
def test_products_on_lanes_are_products(d):
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(d, d, 5, 1)), rng.normal(size=(d, 2, 1, 4))
    exact = np.einsum("ija,jkb->ikab", X[..., 0], Y[..., 0, :])
    np.testing.assert_allclose(product(jnp.asarray(X), jnp.asarray(Y)), exact, atol=1e-13)
    u = sides(rng, d, 2, 3)
    for x, back in zip(u, unflatten(flatten(u), d, 2)):
        np.testing.assert_array_equal(x, back)


CASES = {
    "caps, two heads, a bound": {"d": 2, "r": 2, "cap": 2.0, "cost": "effort", "heads": 2, "bounds": (("A", 1.5),)},
    "kinetic energy, a thin Gaussian": {"d": 3, "r": 2, "cap": None, "cost": "kinetic", "symmetric_B": True},
    "no attention": {"d": 2, "r": 2, "cap": 1.5, "cost": "kinetic", "allow": "Ab"},
}


@pytest.mark.parametrize("case", CASES)
def test_side_by_side_is_row_by_row(case):
    """c, s, cost, J, G, slope and a Hessian product against reverse mode along the path; a strong piece takes more
    steps than the others, and the horizon is not one."""
    asked = dict(CASES[case])
    d, r, cap, cost = (asked.pop(name) for name in ("d", "r", "cap", "cost"))
    rng = np.random.default_rng(3)
    start, target = (
        Gaussian(jnp.asarray(rng.normal(size=d)), jnp.asarray(rng.normal(size=(d, r)) / 2 + np.eye(d, r)))
        for _ in range(2)
    )
    problem = Problem(start, target, 3, 1.3, asked.pop("allow", "ABVb"), jnp.asarray(0.0), **asked)
    caps = None if cap is None else cap * jnp.maximum(jnp.diag(start.covariance), jnp.diag(target.covariance))
    ground, pace = Ground(problem, caps, cost), jnp.asarray([3.0, 1.0, 6.0])
    u = ground.flat(problem.zero_controls())
    u, v = u + 0.3 * jnp.asarray(rng.normal(size=u.size)), jnp.asarray(rng.normal(size=u.size))

    def f(c, s, cost):
        """Linear in c and the cost; bent in s."""
        return 1.1 * cost - jnp.cos(jnp.arange(c.size)) @ c + jnp.sum(jnp.exp(s))

    @jax.jit
    def fast(u):
        found = side_by_side(ground, u, pace, problem.weights(ground.controls(u)))
        return *found[:6], found.hessian(f)(v)

    @jax.jit
    def slow(u):
        bent = jax.jvp(jax.grad(lambda u: f(*ground.smooth(u, pace))), (u,), (v,))[1]
        return *row_by_row(ground, u, pace)[:6], bent

    for x, y in zip(fast(u), slow(u)):
        np.testing.assert_allclose(x, y, atol=1e-12 * max(1, float(jnp.max(jnp.abs(y), initial=0))))


# --- batches of searches --------------------------------------------------------------------------------------------


def counting(rounds):
    """n ↦ (n halved until it is below 1, how often), and every halving is seen."""

    def search(asked):
        x, name = asked

        def halve(now):
            jax.debug.callback(lambda: rounds.update([name]))
            return now[0] / 2, now[1] + 1

        return *jax.lax.while_loop(lambda now: now[0] >= 1, halve, (x, 0)), name

    return search


def test_searches_side_by_side_wait_for_nobody():
    rounds = Counter()
    x = jnp.asarray([1.0, 16.0, 3.0])
    search = one_by_one(counting(rounds))
    left, count = jax.jit(jax.vmap(lambda x: search((x, "a"))[:2]))(x)
    jax.effects_barrier()
    np.testing.assert_array_equal(count, [1, 5, 2])
    np.testing.assert_array_equal(left, [0.5, 0.5, 0.75])
    assert search((x[0], "b"))[2] == "b"
    jax.effects_barrier()
    assert rounds == {"a": 1 + 5 + 2, "b": 1}


def test_arguments_that_all_lanes_share_are_not_copied_wrongly():
    shared = jnp.asarray([2.0, 3.0])
    f = one_by_one(lambda x: {"sum": x["a"] @ x["b"], "kind": "static"})
    found = jax.vmap(lambda a: f({"a": a, "b": shared})["sum"])(jnp.eye(2))
    np.testing.assert_array_equal(found, shared)
    twice = jax.vmap(jax.vmap(lambda a: f({"a": a, "b": shared})["sum"]))(jnp.ones((2, 3, 2)))
    np.testing.assert_array_equal(twice, jnp.full((2, 3), 5.0))
