"""Newton's method in a trust region: known minima, saddle points left, and honest ends."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.geometry import Sphere
from jaxflow.transport import name_of
from jaxflow.transport.minimise import Ended, code_of, ended, minimise


def flat(x, z):
    return x + z


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


@pytest.fixture(scope="module")
def valley():
    """The curved valley of Rosenbrock, from any start and with any number of steps, in one program."""
    return jax.jit(lambda x, steps: minimise(rosenbrock, flat, x, tolerance=1e-10, max_iterations=steps))


def test_it_follows_a_curved_valley_and_ends_in_the_minimum(valley):
    found = valley(jnp.asarray([-1.2, 1.0]), 100)
    assert name_of(found.status) == "optimal"
    np.testing.assert_allclose(found.x, 1, rtol=1e-10)
    assert found.value < 1e-20
    assert found.optimality <= 1e-10
    assert 5 < int(found.iterations) < 40


def test_it_works_under_vmap(valley):
    starts = jnp.asarray(oracles.general(5, 2, seed=1))
    found = jax.vmap(lambda x: valley(x, 100))(starts)
    np.testing.assert_allclose(found.x, np.ones((5, 2)), rtol=1e-9)
    assert bool(jnp.all(found.status == Ended.optimal))


def test_it_says_when_steps_run_out_and_when_values_are_not_finite(valley):
    short = valley(jnp.asarray([-1.2, 1.0]), 3)
    assert (name_of(short.status), int(short.iterations)) == ("iterations", 3)
    # What it reports belongs to the point it returns.
    np.testing.assert_allclose(short.value, rosenbrock(short.x), rtol=1e-13)
    np.testing.assert_allclose(short.optimality, np.linalg.norm(jax.grad(rosenbrock)(short.x)), rtol=1e-12)
    assert name_of(valley(jnp.asarray([np.nan, 1.0]), 100).status) == "nonfinite"


def test_it_leaves_a_saddle_point_by_negative_curvature():
    """f = (x² − 1)²/4 + 2y²: from 1e-4 beside the saddle at 0 to one of the two minima."""

    def double_well(x):
        return (x[0] ** 2 - 1) ** 2 / 4 + 2 * x[1] ** 2

    found = minimise(double_well, flat, jnp.asarray([-1e-4, 0.5]), tolerance=1e-10, max_iterations=50)
    np.testing.assert_allclose(found.x, [-1, 0], atol=1e-9)
    assert int(found.iterations) < 15


def test_the_smallest_eigenvalue_is_a_minimum_on_the_sphere():
    A = jnp.asarray(oracles.symmetric(1, 6, seed=2)[0])

    def move(x, z):
        return Sphere().retract(x + Sphere().project(x, z))

    start = jnp.asarray(oracles.unit_rows(1, 6, seed=3)[0])
    found = minimise(lambda x: x @ A @ x, move, start, tolerance=1e-9, max_iterations=50)
    np.testing.assert_allclose(found.value, np.linalg.eigvalsh(A)[0], rtol=1e-12)
    np.testing.assert_allclose(jnp.linalg.norm(found.x), 1, rtol=1e-15)


def test_a_quadratic_takes_few_steps_because_conjugate_gradients_are_conjugate():
    """Eight eigenvalues from 1 to 1000: the forcing terms 0.1, then |g|, leave four steps of Newton's method."""
    a = jnp.geomspace(1.0, 1000.0, 8)
    start = jnp.asarray(oracles.general(8, seed=4))
    found = minimise(lambda x: x @ (a * x) / 2, flat, start, tolerance=1e-9, max_iterations=50, radius=100.0)
    np.testing.assert_allclose(found.x, 0, atol=1e-9)
    assert int(found.iterations) <= 8


def test_a_value_that_cannot_be_resolved_ends_stalled():
    """|x| has no gradient that vanishes: the radius shrinks to nothing."""
    found = minimise(lambda x: jnp.sum(jnp.abs(x)), flat, jnp.asarray([0.3]), tolerance=1e-10, max_iterations=500)
    assert name_of(found.status) == "stalled"
    assert abs(found.x[0]) < 1e-10


def test_statuses_have_codes():
    for name in ("optimal", "iterations", "stalled", "nonfinite"):
        assert name_of(ended(code_of(getattr(Ended, name)))) == name
