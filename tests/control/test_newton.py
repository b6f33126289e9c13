"""Gauss–Newton on the manifold of Gaussians: exact hits from its own start, whatever the rank; honest integration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.control import Problem, advance, begin
from jaxflow.control.shoot import end_of, rough_end
from jaxflow.measures import Gaussian
from jaxflow.weights import Function, Piecewise, Sampled, make_layer

SEGMENTS = 10
OPTIONS = {"method": "gauss-newton", "learning_rate": 0.0, "iterations": 100}


def problem_data(d, i, r):
    """Problem i of dimension d in the set of the benchmarks, its covariances cut down to rank r (columns of zeros)."""
    rng = np.random.default_rng([18870, d, i])
    data = [rng.normal(size=d), rng.normal(size=(d, d)) / np.sqrt(d) + 0.2 * np.eye(d)]
    data += [rng.normal(size=d), rng.normal(size=(d, d)) / np.sqrt(d) + 0.2 * np.eye(d)]
    for L in data[1::2]:
        L[:, r:] = 0
    return data


def search_of(mean0, L0, mean1, L1, allow="ABVb"):
    problem = Problem(Gaussian(mean0, L0), Gaussian(mean1, L1), SEGMENTS, 1.0, allow, jnp.asarray(0.0))
    search = begin(problem, problem.zero_controls(), **OPTIONS)
    return advance(problem, search, steps=100, tolerance=1e-11, **OPTIONS)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "ranks"), [(2, (1, 2)), (3, (1, 2, 3)), (6, range(1, 7)), (9, range(1, 10)), (16, (1, 7, 16))]
)
def test_random_problems_of_every_rank_are_hit_to_1e_10_from_zero_controls(d, ranks):
    # One program serves all ranks: columns of zeros stay zero, and the search sees the rank in the numbers.
    data = [problem_data(d, r, r) for r in ranks]
    search = jax.jit(jax.vmap(search_of))(*(jnp.asarray(np.stack(x)) for x in zip(*data)))
    assert int(search.iteration.max()) <= 15
    for i, (mean0, L0, mean1, L1) in enumerate(data):
        A, B, V, b = (np.asarray(search.best[name][i]) for name in "ABVb")
        edges = tuple(np.linspace(0, 1, SEGMENTS + 1))

        def layer_at(t, A=A, B=B, V=V, b=b):
            k = min(int(t * SEGMENTS), SEGMENTS - 1)
            return A[k], b[k], [(1.0, B[k], V[k])]

        ((mean, covariance),) = oracles.moments(mean0, L0 @ L0.T, layer_at, (1.0,), edges=edges)
        np.testing.assert_allclose(mean, mean1, atol=1e-10)
        np.testing.assert_allclose(covariance, L1 @ L1.T, atol=1e-10)


@pytest.mark.slow
def test_gauss_newton_arrives_from_random_starts():
    d, data = 3, [jnp.asarray(x) for x in problem_data(3, 0, 3)]

    def search_from(controls):
        problem = Problem(Gaussian(*data[:2]), Gaussian(*data[2:]), SEGMENTS, 1.0, "ABVb", jnp.asarray(0.0))
        search = begin(problem, controls, **OPTIONS)
        return advance(problem, search, steps=100, tolerance=1e-11, **OPTIONS)[0]

    rng = np.random.default_rng(5)
    shapes = {"A": (d, d), "B": (d, d), "V": (d, d), "b": (d,)}
    controls = {name: jnp.asarray(0.7 * rng.normal(size=(12, SEGMENTS, *s))) for name, s in shapes.items()}
    search = jax.jit(jax.vmap(search_from))(controls)
    assert (search.distance <= 1e-11).all()
    assert np.unique(np.round(search.best["A"][:, 0, 0, 0], 6)).size == 12


def moving_layer(t):
    return make_layer(
        A=jnp.array([[0.3, -0.4], [0.2, 0.1]]) * jnp.cos(3 * t), B=jnp.array([[0.2, 0.5], [-0.3, 0.4]]) + 0.1 * t,
        V=jnp.array([[0.3, 0.2], [-0.6, 0.1]]) * jnp.exp(-t), b=jnp.array([0.3, -0.2]) * t,
    )  # fmt: skip


def as_oracle(schedule):
    def layer_at(t):
        layer = schedule.at(t)
        heads = [] if layer.B is None else [(1.0, np.asarray(layer.B[0]), np.asarray(layer.V[0]))]
        return np.asarray(layer.A), np.asarray(layer.b), heads

    return layer_at


@pytest.mark.parametrize("kind", ["function", "piecewise", "sampled"])
def test_the_precise_end_is_dop853s_and_the_rough_one_is_near(kind):
    start = Gaussian(jnp.array([0.4, -0.3]), jnp.array([[0.9, 0.0], [0.3, 0.5]]))
    knots = np.array([0.0, 0.5, 0.8, 1.5])
    layers = [moving_layer(jnp.asarray(t)) for t in knots]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *layers)
    schedule = {
        "function": Function(moving_layer),
        "sampled": Sampled(jnp.asarray(knots), stacked, edges=tuple(knots.tolist())),
        "piecewise": Piecewise(
            A=stacked.A[1:], B=stacked.B[1:, 0], V=stacked.V[1:, 0], b=stacked.b[1:], durations=np.diff(knots).tolist()
        ),
    }[kind]
    edges = () if kind == "function" else tuple(knots)
    layer_at = as_oracle(schedule)
    if kind == "sampled":
        # The oracle takes the middle of a piece for the whole of it; here layers move within pieces.
        edges = ()
    ((mean, covariance),) = oracles.moments(
        np.asarray(start.mean), np.asarray(start.covariance), layer_at, (1.5,), edges=edges
    )
    end, arrived = eqx.filter_jit(end_of)(schedule, start, 1.5)
    assert bool(arrived)
    np.testing.assert_allclose(end.mean, mean, atol=1e-11)
    np.testing.assert_allclose(end.covariance, covariance, atol=1e-11)
    rough = eqx.filter_jit(rough_end)(schedule, start, 1.5, 20)
    np.testing.assert_allclose(rough.mean, mean, atol=1e-6)
    np.testing.assert_allclose(rough.covariance, covariance, atol=1e-6)


def test_a_blow_up_between_the_nodes_of_a_grid_is_no_arrival():
    # ℓ' = 2cℓ², ℓ(0) = 1 blows up at 1/(2c): before the end for c = 0.6, after it for c = 0.4.
    start = Gaussian(jnp.zeros(1), jnp.ones((1, 1)))

    def arrives(c):
        end, arrived = end_of(Piecewise(B=c * jnp.ones((1, 1, 1)), V=jnp.ones((1, 1, 1)), t1=1.0), start, 1.0)
        return end.covariance[0, 0], arrived

    covariance, arrived = jax.jit(jax.vmap(arrives))(jnp.array([0.4, 0.6]))
    assert arrived.tolist() == [True, False]
    np.testing.assert_allclose(covariance[0], 1 / (1 - 0.8), rtol=1e-11)
    assert np.isfinite(covariance).all()
