"""Controls as curves in time: what they cost, the limits they keep, and exact hits with every kind of them."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow import control
from jaxflow.control import Lines, Network, Problem, Steps, Waves, advance, begin
from jaxflow.control.limits import into_ball, out_of_ball
from jaxflow.control.shoot import end_of
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian
from jaxflow.weights import Fourier, Function, Piecewise, make_layer

OPTIONS = {"method": "gauss-newton", "learning_rate": 0.0, "iterations": 60}
CURVES = [Steps(3), Lines(3), Waves(2), Network(width=6)]
BOUNDS = (("A", 2.0), ("B", 1.5), ("V", 2.0), ("b", 3.0))


def gaussian(seed, d=2, r=2):
    rng = np.random.default_rng(seed)
    return Gaussian(
        jnp.asarray(rng.normal(size=d)), jnp.asarray(rng.normal(size=(d, r)) / np.sqrt(d) + 0.4 * np.eye(d, r))
    )


def problem_of(curve, *, pair=(1, 2), t1=1.3, allow="ABVb", **options):
    return Problem(
        gaussian(pair[0]), gaussian(pair[1]), curve.pieces, t1, allow, jnp.asarray(0.0), curve=curve, **options
    )


def anywhere(problem, *, seed=0, size=1.0):
    """Controls without symmetry or order."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + size * jnp.asarray(rng.normal(size=x.shape)), problem.zero_controls())


def layer_values(schedule, prices=None):
    """t ↦ the numbers of the layer, as one vector, times the roots of their prices."""
    roots = {name: np.sqrt((prices or {}).get(name, 1.0)) for name in "ABVb"}

    def values(t):
        layer = schedule.at(t)
        return jnp.concatenate([root * getattr(layer, name).ravel() for name, root in roots.items()])

    return values, lambda t: jax.jvp(values, (t,), (jnp.ones_like(t),))[1]


def by_quadrature(f, edges):
    """∫ |f|² by 200 panels of 8 Gauss–Legendre nodes on every piece: more than enough, and not the library's rule."""
    x, w = np.polynomial.legendre.leggauss(8)
    panels = np.concatenate([np.linspace(a, b, 201)[:-1] for a, b in pairwise(edges)])
    h = np.repeat(np.diff(edges), 200) / 200
    times, shares = panels[:, None] + h[:, None] * (1 + x) / 2, h[:, None] * w / 2
    values = jax.jit(jax.vmap(f))(jnp.asarray(times.ravel()))
    return float(np.sum(shares.ravel()[:, None] * np.asarray(values) ** 2))


PRICES = {"A": 2.0, "B": 0.7, "b": 3.0}


@pytest.mark.parametrize("curve", CURVES, ids=lambda c: type(c).__name__)
def test_prices_multiply_the_terms_of_their_controls(curve):
    problem = problem_of(curve, prices=jax.tree.map(jnp.asarray, PRICES))
    controls = anywhere(problem, size=0.5)
    schedule = problem.weights(controls)
    priced, _ = layer_values(schedule, PRICES)
    exact = by_quadrature(priced, schedule.edges or (0.0, 1.3))
    np.testing.assert_allclose(control.effort(schedule, prices=PRICES), exact, rtol=1e-12)
    np.testing.assert_allclose(problem.effort(controls), exact, rtol=1e-12)


@pytest.mark.parametrize("curve", [*CURVES[1:], Waves(1)], ids=["linear", "fourier", "mlp", "bounded fourier"])
def test_effort_and_smoothness_are_the_integrals_by_quadrature_to_1e_12(curve):
    bounds = BOUNDS if curve.size == 3 else ()
    problem = problem_of(curve, bounds=bounds)
    controls = anywhere(problem, size=0.5)
    schedule = problem.weights(controls)
    values, rates = layer_values(schedule)
    edges = schedule.edges or (0.0, 1.3)
    np.testing.assert_allclose(control.effort(schedule), by_quadrature(values, edges), rtol=1e-12)
    np.testing.assert_allclose(control.smoothness(schedule), by_quadrature(rates, edges), rtol=1e-12)
    np.testing.assert_allclose(problem.effort(controls), control.effort(schedule), rtol=1e-15)


def test_smoothness_of_constant_pieces_is_that_of_lines_between_their_middles():
    weights = Piecewise(b=jnp.asarray([[0.0, 1.0], [2.0, 1.0], [2.0, 4.0]]), t1=1.5)
    np.testing.assert_allclose(control.smoothness(weights), (4 + 9) / 0.5, rtol=1e-15)


def test_effort_asks_where_a_schedule_without_edges_ends():
    schedule = Function(lambda t: make_layer(b=t * jnp.ones(2)))
    np.testing.assert_allclose(control.effort(schedule, t1=3.0), 2 * 27 / 3, rtol=1e-13)
    with pytest.raises(InputError, match="without edges"):
        control.effort(schedule)
    with pytest.raises(InputError, match="known from the schedule"):
        control.effort(Fourier(b=jnp.ones((1, 2)), t1=1.0), t1=1.0)


@pytest.mark.parametrize("curve", CURVES, ids=lambda c: type(c).__name__)
def test_bounds_hold_at_a_thousand_times_and_symmetric_b_is_symmetric(curve):
    problem = problem_of(curve, bounds=BOUNDS, symmetric_B=True, heads=2)
    # Far beyond the bounds, so that every control is pressed against its ball.
    schedule = problem.weights(anywhere(problem, size=300.0))
    layers = jax.jit(jax.vmap(schedule.at))(jnp.linspace(0, 1.3, 1000))
    for name, r in BOUNDS:
        norms = np.sqrt(np.sum(np.asarray(getattr(layers, name)).reshape(1000, -1) ** 2, axis=1))
        assert norms.max() <= r * (1 + 1e-14), name
        assert norms.max() > 0.9 * r, name
    np.testing.assert_array_equal(layers.B, np.swapaxes(layers.B, -1, -2))
    assert layers.B.shape == (1000, 2, 2, 2)
    np.testing.assert_allclose(layers.mass, 1.0, atol=1e-14)


def test_the_ball_is_left_as_it_was_entered():
    u = jnp.asarray([[0.3, -0.4], [0.0, 0.0], [0.9, 1.1]])
    np.testing.assert_allclose(into_ball(out_of_ball(u, 2.0, lead=1), 2.0, lead=1), u, atol=1e-15)
    # What lies outside comes back with its direction and 0.9 of the radius.
    np.testing.assert_allclose(into_ball(out_of_ball(jnp.asarray([3.0, 4.0]), 2.0), 2.0), [1.08, 1.44], rtol=1e-14)


@pytest.mark.parametrize("curve", CURVES, ids=lambda c: type(c).__name__)
def test_a_curve_that_can_be_level_is_fitted_exactly(curve):
    problem = problem_of(curve, bounds=(("A", 5.0),))
    A, b = jnp.asarray(oracles.general(2, 2)), jnp.asarray(oracles.general(2, seed=1))
    found = problem.along(lambda t: make_layer(A=A, b=b), problem.zero_controls())
    for t in (0.0, 0.4, 1.3):
        layer = problem.weights(found).at(t)
        np.testing.assert_allclose(layer.b, b, atol=1e-12)
        np.testing.assert_allclose(layer.A, A, atol=1e-12)


def test_two_halves_of_a_head_are_that_head():
    one, two = problem_of(Steps(3)), problem_of(Steps(3), heads=2)
    controls = anywhere(one, size=0.4)
    B, V = controls["B"], controls["V"]
    split = controls | {"B": jnp.stack([B, B], 1), "V": jnp.stack([0.3 * V, 0.7 * V], 1)}
    (end, _), (same, _) = (end_of(p.weights(c), p.start, 1.3) for p, c in ((one, controls), (two, split)))
    np.testing.assert_allclose(same.mean, end.mean, atol=1e-12)
    np.testing.assert_allclose(same.covariance, end.covariance, atol=1e-12)
    # Several heads do not begin alike, or they would stay so.
    first = np.asarray(two.zero_controls()["B"][0])
    assert np.abs(first[0] - first[1]).max() > 0.01


KINDS = {
    "linear": (Lines(3), {}),
    "fourier": (Waves(2), {}),
    "mlp": (Network(width=6), {}),
    "two heads, symmetric B": (Steps(3), {"heads": 2, "symmetric_B": True, "allow": "BVb"}),
    "bounds": (Steps(4), {"bounds": BOUNDS}),
    "bounded waves in free time": (Waves(2), {"bounds": BOUNDS, "horizon": (0.5, 2.0), "t1": 1.0}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_gauss_newton_hits_with_every_kind_of_controls_to_1e_10_by_scipy(kind):
    curve, options = KINDS[kind]
    problem = problem_of(curve, **options)

    @jax.jit
    def search(problem):
        begun = begin(problem, problem.zero_controls(), **OPTIONS)
        return advance(problem, begun, steps=60, tolerance=1e-11, **OPTIONS)[0]

    found = search(problem)
    assert int(found.iteration) < 20
    # The layers as one runs them: on [0, T].
    schedule, T = problem.layers_in_time(found.best), float(problem.duration(found.best))
    at = jax.jit(lambda t: schedule.at(t))  # noqa: PLW0108 - a schedule has no hash

    def layer_at(t):
        layer = at(t)
        A = np.zeros((2, 2)) if layer.A is None else np.asarray(layer.A)
        heads = list(zip(np.asarray(layer.mass), np.asarray(layer.B), np.asarray(layer.V)))
        return A, np.asarray(layer.b), heads

    # The oracle takes the middle of a piece for the whole of it: right for constant ones alone.
    edges = schedule.edges if isinstance(curve, Steps) else ()
    given = np.asarray(problem.start.mean), np.asarray(problem.start.covariance)
    ((mean, covariance),) = oracles.moments(*given, layer_at, (T,), edges=edges)
    np.testing.assert_allclose(mean, problem.target.mean, atol=1e-10)
    np.testing.assert_allclose(covariance, problem.target.covariance, atol=1e-10)
