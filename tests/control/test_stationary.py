"""How the cheapest controls answer start, target, caps and prices: closed forms, and the search begun anew."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxflow.control import Stop, cheapest, geodesic
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian
from jaxflow.weights import Piecewise


def gaussian(mean, factor):
    return Gaussian(jnp.asarray(mean, float), jnp.asarray(factor, float))


def in_both_modes(f, x, direction):
    """f(x), its derivative along a direction, ⟨w, derivative⟩ for some w by forward and by reverse mode, and what f
    says beside its value. One compiled program and one search for all of them."""
    value, push, aside = jax.linearize(f, x, has_aux=True)
    forward = push(direction)
    w = like(np.random.default_rng(3), value)
    (gradient,) = jax.linear_transpose(push, x)(w)
    return value, forward, (dot(w, forward), dot(gradient, direction)), aside


def like(rng, tree):
    """Random numbers in place of all entries."""
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), tree)


def dot(x, y):
    return sum(jnp.vdot(*pair) for pair in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))


# --- a closed form --------------------------------------------------------------------------------------------------

T1 = 1.6


def scaling(L0, L1, p):
    """The constant A, the effort and its multiplier for N(0, L₀²) → N(0, L₁²) with A at the price p."""
    plan = cheapest(
        gaussian(jnp.zeros(1), jnp.reshape(L0, (1, 1))), gaussian(jnp.zeros(1), jnp.reshape(L1, (1, 1))),
        segments=2, t1=T1, allow="A", prices={"A": p}, tolerance=1e-10,
    )  # fmt: skip
    return plan.weights.layers.A[1, 0, 0], plan.cost, plan.multiplier_covariance[0, 0]


def by_hand(L0, L1, p):
    log = 2 * jnp.log(L1 / L0)
    return log / 2 / T1, p * log**2 / 4 / T1, p * log / 2 / T1 / L1**2


@pytest.mark.slow
def test_the_cheapest_scaling_answers_as_its_closed_form_in_both_modes_and_under_vmap():
    x = jnp.array([0.7, 1.1]), jnp.array([1.9, 0.8]), jnp.array([1.0, 2.5])
    direction = like(np.random.default_rng(2), x)

    def both(f):
        return jax.jit(jax.vmap(lambda *given: in_both_modes(lambda x: (f(*x), ()), *given)))(x, direction)

    found, exact = both(scaling), both(by_hand)
    # What the last step left of λ is 1e-7 of it.
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)


# --- the search begun anew ------------------------------------------------------------------------------------------


def first_pair():
    """Problem 0 of d = 2 in the set of the benchmarks, which drifts without caps."""
    rng = np.random.default_rng([18870, 2, 0])
    return [gaussian(rng.normal(size=2), rng.normal(size=(2, 2)) / np.sqrt(2) + 0.2 * np.eye(2)) for _ in range(2)]


def answer(theta, warm_start):
    """What has a derivative, and the word and the multipliers of the caps."""
    start, target, prices, cap = theta
    plan = cheapest(
        start, target, segments=len(warm_start.edges) - 1, prices=prices, cap=cap,
        tolerance=1e-8 if cap is None else 1e-7, iterations=300, warm_start=warm_start,
    )  # fmt: skip
    answers = plan.weights, plan.cost, plan.multiplier_mean, plan.multiplier_covariance
    return answers, (plan.stop, plan.multiplier_caps)


@pytest.mark.slow
@pytest.mark.parametrize("capped", [False, True])
def test_the_derivative_of_the_cheapest_controls_is_that_of_searches_begun_at_them(capped):
    """Central differences with Richardson's step, along one direction of start, target, prices and caps at once."""
    start = gaussian([0.4, -0.2], [[0.9, 0.0], [0.3, 0.6]])
    target = gaussian([-0.3, 0.5], [[0.7, 0.0], [-0.4, 1.0]])
    segments = 4 if capped else 3
    prices = {"A": jnp.asarray(1.3), "V": jnp.asarray(0.7)}
    cap = None
    if capped:
        start, target = first_pair()
        cap = 1.5 * jnp.maximum(jnp.diag(start.covariance), jnp.diag(target.covariance))
    theta = (start, target, prices, cap)
    rng = np.random.default_rng(1)
    direction = jax.tree.map(lambda x: 0.3 * x, like(rng, theta))

    @eqx.filter_jit
    def search(theta, warm_start):
        return in_both_modes(lambda theta: answer(theta, warm_start), theta, direction)

    B = jnp.tile(0.1 * jnp.eye(2), (segments, 1, 1))
    layers = jax.vmap(geodesic(start, target).at)((jnp.arange(segments) + 0.5) / segments)
    warm_start = Piecewise(A=layers.A, b=layers.b, B=B, V=0 * B, t1=1.0)
    found, forward, pair, (stop, z) = search(theta, warm_start)
    assert stop == Stop.minimum
    assert not capped or z.max() > 1e-2

    def moved(h):
        return search(jax.tree.map(lambda x, dx: x + h * dx, theta, direction), found[0])[0]

    def difference(h):
        return jax.tree.map(lambda x, y: (x - y) / (2 * h), moved(h), moved(-h))

    h = 4e-3 if capped else 1e-3
    expected = jax.tree.map(lambda x, y: (4 * y - x) / 3, difference(2 * h), difference(h))
    for x, y in zip(jax.tree.leaves(forward), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4 * float(jnp.abs(y).max()))
    # Caps leave H so stiff that its solutions are good to six digits.
    np.testing.assert_allclose(*pair, rtol=1e-5 if capped else 1e-7)


@pytest.mark.slow
def test_where_no_minimum_was_found_the_derivative_is_nan():
    """Of the cost alone, whose derivative asks for no multipliers."""

    def least(L1):
        start, target = gaussian([0.0], [[0.7]]), gaussian([0.4], jnp.reshape(L1, (1, 1)))
        plan = cheapest(start, target, segments=2, iterations=1, tolerance=1e-12)
        return plan.cost, plan.stop

    cost, _, pair, stop = jax.jit(lambda x: in_both_modes(least, x, jnp.ones(())))(jnp.asarray(1.9))
    assert stop == Stop.iterations
    assert jnp.isfinite(cost)
    assert jnp.isnan(jnp.stack(pair)).all()


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"prices": {"A": -1.0}}, "prices.A"),
        ({"prices": {"V": 2.0}, "allow": "Ab"}, "prices.V"),
        ({"prices": {"AB": 2.0}}, "prices.AB"),
        ({"prices": {"A": 2.0}, "cost": "kinetic"}, "prices"),
    ],
)
def test_prices_that_do_not_fit_are_refused(options, where):
    with pytest.raises(InputError) as caught:
        cheapest(gaussian([0.0], [[1.0]]), gaussian([1.0], [[1.0]]), **options)
    assert caught.value.where == where
