"""The gradient of a descent, carried back step by step, beside the one through `solve`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxflow.control import Problem, steer
from jaxflow.control.adjoint import end_of_pieces
from jaxflow.measures import Gaussian
from jaxflow.solve import Tsit5
from jaxflow.weights import Piecewise

CASES = {
    "full rank": {"d": 3, "r": 3},
    "bounds, two heads, symmetric B": {
        "d": 3, "r": 2, "heads": 2, "symmetric_B": True, "bounds": (("A", 1.5), ("V", 2.0)),
        "smoothness_weight": jnp.asarray(1e-2),
    },
    "a free horizon, no attention": {
        "d": 2, "r": 1, "allow": "Ab", "horizon": (0.5, 2.0), "time_weight": jnp.asarray(1e-2),
    },
    "matrices of a library's size": {"d": 9, "r": 4},
}  # fmt: skip


def case_of(name, seed=0, **more):
    """A problem, and controls away from zero with a strong piece, which takes several steps."""
    asked = CASES[name] | more
    d, r, allow = asked.pop("d"), asked.pop("r"), asked.pop("allow", "ABVb")
    rng = np.random.default_rng(seed)
    start, target = (
        Gaussian(jnp.asarray(rng.normal(size=d)), jnp.asarray(rng.normal(size=(d, r)) / 2 + np.eye(d, r)))
        for _ in range(2)
    )
    t1 = 1.0 if "horizon" in asked else 1.3
    problem = Problem(start, target, 3, t1, allow, jnp.asarray(1e-2), rtol=1e-10, atol=1e-10, **asked)
    pace = np.array([0.2, 0.6, 0.3]) / np.sqrt(d)
    controls = {
        key: x + jnp.asarray((pace.reshape(3, *[1] * (x.ndim - 1)) if x.ndim else 1) * rng.normal(size=x.shape))
        for key, x in problem.zero_controls().items()
    }
    return problem, controls


def gradient_of(problem, controls):
    """(objective, W₂²) and the gradient of the first in the controls and the start."""

    def loss(controls, start):
        moved = eqx.tree_at(lambda problem: problem.start, problem, start)
        return moved.loss(controls, problem.effort_weight)

    value, (of_controls, of_start) = jax.value_and_grad(loss, (0, 1), has_aux=True)(controls, problem.start)
    return value, of_controls | {"mean": of_start.mean, "factor": of_start.factor}


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_the_one_through_solve(name):
    """Two integrators and two ways back, each at 1e-10."""
    problem, controls = case_of(name)
    assert isinstance(problem.weights(controls), Piecewise)
    (value, square), gradient = jax.jit(gradient_of)(problem, controls)
    other, _ = case_of(name, method=Tsit5())
    (other_value, other_square), other_gradient = jax.jit(gradient_of)(other, controls)
    np.testing.assert_allclose([value, square], [other_value, other_square], rtol=1e-8)
    for key, x in other_gradient.items():
        np.testing.assert_allclose(gradient[key], x, rtol=1e-8, atol=1e-8 * float(jnp.max(jnp.abs(x))))


def test_problems_side_by_side_are_problems_one_by_one():
    """Lanes that take different numbers of steps, one of which blows up."""
    found = [case_of("full rank", seed) for seed in range(3)]
    problems, controls = zip(*found)
    strong = controls[1] | {name: 30 * jnp.broadcast_to(jnp.eye(3), (3, 3, 3)) for name in "BV"}
    controls = (controls[0], strong, controls[2])
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *controls)
    together = jax.jit(jax.vmap(gradient_of))(jax.tree.map(lambda *x: jnp.stack(x), *problems), stacked)
    alone = [jax.jit(gradient_of)(*now) for now in zip(problems, controls)]
    for x, *ys in zip(jax.tree.leaves(together), *(jax.tree.leaves(one) for one in alone)):
        y = np.stack(ys)
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-11 * np.abs(y[[0, 2]]).max())
    assert np.isinf(together[0][1]).tolist() == [False, True, False]


def test_the_gradient_at_a_blow_up_is_that_of_the_effort():
    problem, controls = case_of("full rank", allow="BV")
    strong = {name: 20 * jnp.broadcast_to(jnp.eye(3), x.shape) for name, x in controls.items()}
    (value, square), gradient = jax.jit(gradient_of)(problem, strong)
    effort = jax.grad(problem.effort)(strong)
    assert np.isfinite(value)
    assert np.isinf(square)
    for name, x in effort.items():
        np.testing.assert_allclose(gradient[name], x, rtol=1e-12)


def test_the_gradient_of_a_descent_has_a_derivative_of_its_own():
    """Steps of fixed lengths are differentiated, so that an error estimate of zero leaves no 0/0: here nothing moves
    where the controls are zero. Against differences of the gradient."""
    problem, _ = case_of("full rank", allow="ABb")
    controls = problem.zero_controls()
    rng = np.random.default_rng(7)
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), controls)

    @jax.jit
    def gradient(controls):
        return jax.grad(lambda controls: problem.loss(controls, problem.effort_weight)[0])(controls)

    _, bend = jax.jit(lambda x, dx: jax.jvp(gradient, (x,), (dx,)))(controls, direction)

    def moved(h):
        return gradient(jax.tree.map(lambda x, dx: x + h * dx, controls, direction))

    def difference(h):
        return jax.tree.map(lambda x, y: (x - y) / (2 * h), moved(h), moved(-h))

    coarse, fine = difference(2e-3), difference(1e-3)
    for name, x in bend.items():
        exact = (4 * fine[name] - coarse[name]) / 3
        np.testing.assert_allclose(x, exact, atol=1e-6 * float(jnp.max(jnp.abs(exact))))


@pytest.mark.parametrize("mode", [jax.grad, jax.jacfwd])
def test_the_derivative_of_a_descent_is_refused(mode):
    problem, _ = case_of("full rank")

    def found(mean):
        target = Gaussian(mean, problem.target.factor)
        return steer(problem.start, target, segments=2, method="adam", iterations=2).effort

    with pytest.raises(RuntimeError, match="gauss-newton"):
        mode(found)(problem.target.mean)


@pytest.mark.parametrize(("pieces", "radians"), [(1, 1e5), (10, 400.0)])
def test_a_flow_of_many_steps_is_as_good_as_a_blow_up(pieces, radians):
    """Rotations: Dopri8 needs more steps than one piece may take, or than are kept for ten of them."""
    A = radians * jnp.tile(jnp.asarray([[0.0, -1.0], [1.0, 0.0]]), (pieces, 1, 1))
    start = Gaussian(jnp.ones(2), jnp.eye(2))
    end, arrived = jax.jit(lambda A: end_of_pieces(Piecewise(A=A, t1=1.0), start))(A)
    assert not bool(arrived)
    assert np.isfinite(np.asarray(end.factor)).all()
