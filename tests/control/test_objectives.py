"""What a search minimises, and why it stops: KL, moments, running costs, free time; honest ends."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow import control
from jaxflow.control import Lines, Network, Problem, Stop, Waves, advance, begin, curve_of, kl_divergence, steer, why
from jaxflow.control.losses import check_loss
from jaxflow.control.warm import with_controls
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian
from jaxflow.solve import RK4
from jaxflow.weights import Fourier, Piecewise


def gaussian(seed, d=2, r=2):
    rng = np.random.default_rng(seed)
    return Gaussian(
        jnp.asarray(rng.normal(size=d)), jnp.asarray(rng.normal(size=(d, r)) / np.sqrt(d) + 0.4 * np.eye(d, r))
    )


def line(mean, deviation):
    return Gaussian(jnp.asarray([mean]), jnp.asarray([[deviation]]))


def test_kl_is_the_closed_formula_and_zero_at_coincidence():
    first, second = gaussian(3, 4, 4), gaussian(4, 4, 4)
    (m0, S0), (m1, S1) = ((np.asarray(g.mean), np.asarray(g.covariance)) for g in (first, second))
    inverse = np.linalg.inv(S1)
    logdet = np.linalg.slogdet(S1)[1] - np.linalg.slogdet(S0)[1]
    expected = 0.5 * (np.trace(inverse @ S0) + (m1 - m0) @ inverse @ (m1 - m0) - 4 + logdet)
    np.testing.assert_allclose(kl_divergence(first, second), expected, rtol=1e-12)
    # Another factor of the same covariance.
    turned = Gaussian(second.mean, second.factor @ jnp.asarray(oracles.rotation(4)))
    value, gradient = jax.value_and_grad(kl_divergence)(turned, second)
    assert abs(value) < 1e-13
    assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(gradient)) < 1e-12


def test_gradient_of_kl_agrees_with_finite_differences_to_1e_6():
    first, second, direction = gaussian(5, 3, 3), gaussian(6, 3, 3), gaussian(7, 3, 3)
    _, exact = jax.jvp(kl_divergence, (first, second), (direction, jax.tree.map(jnp.zeros_like, second)))

    def along(h):
        return float(kl_divergence(jax.tree.map(lambda x, u: x + h * u, first, direction), second))

    np.testing.assert_allclose(oracles.derivative(along, 0.0), exact, rtol=1e-6)


def test_the_moment_residual_by_hand():
    first = Gaussian(jnp.asarray([1.0, 0.0]), jnp.eye(2))
    second = Gaussian(jnp.asarray([0.0, 2.0]), jnp.asarray([[1.0], [1.0]]))
    # Means differ by (1, −2), covariances by −1 off the diagonal.
    np.testing.assert_allclose(control.moment_residual(first, second), 5 + 2, rtol=1e-15)


@pytest.mark.slow
def test_gradient_of_the_whole_objective_agrees_with_finite_differences_to_1e_6():
    weight = jnp.asarray(0.05)
    problem = Problem(
        gaussian(1), gaussian(2), 1, 1.0, "ABVb", weight, RK4(), dt=0.02, curve=Waves(1), heads=2, symmetric_B=True,
        bounds=(("A", 2.0), ("B", 1.0)), loss_name="kl", smoothness_weight=weight, time_weight=weight,
        horizon=(0.5, 2.0),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    controls = problem.zero_controls()
    direction = jax.tree.map(lambda x: 0.3 * jnp.asarray(rng.normal(size=x.shape)), controls)
    controls = jax.tree.map(lambda x: x + 0.3 * jnp.asarray(rng.normal(size=x.shape)), controls)
    loss = jax.jit(lambda controls: problem.loss(controls, weight)[0])

    def along(h):
        return float(loss(jax.tree.map(lambda x, u: x + h * u, controls, direction)))

    gradient = jax.jit(jax.grad(loss))(controls)
    exact = sum(float(jnp.sum(x * u)) for x, u in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction)))
    np.testing.assert_allclose(oracles.derivative(along, 0.0), exact, rtol=1e-6)
    assert abs(float(gradient["time"])) > 1e-3


def test_running_costs_along_the_hits_are_least_at_the_closed_optimum():
    weight, per_time, c = 0.3, 0.2, np.log(2)
    problem = Problem(
        line(0.0, 1.0), line(0.0, 2.0), 1, 1.0, "A", jnp.asarray(weight), time_weight=jnp.asarray(per_time),
        horizon=(0.2, 4.0),
    )  # fmt: skip

    def paid(T):
        share = (T - 0.2) / 3.8
        controls = {"A": (c / T).reshape(1, 1, 1), "time": jnp.log(share / (1 - share))}
        value, square = problem.objective(controls, problem.target, jnp.asarray(True), jnp.asarray(weight))
        return value, (square, problem.weights(controls).layers.A[0, 0, 0])

    T = jnp.asarray(c * np.sqrt(weight / per_time))
    (value, (square, A)), slope = jax.value_and_grad(paid, has_aux=True)(T)
    assert abs(slope) < 1e-14
    assert abs(square) < 1e-14
    np.testing.assert_allclose(value, 2 * c * np.sqrt(weight * per_time), rtol=1e-13)
    # In the time s = t/T the layer is T times as strong.
    np.testing.assert_allclose(A, c, rtol=1e-14)


@pytest.mark.slow
def test_free_time_balances_effort_against_time_at_the_closed_optimum():
    # A constant: deviations grow by e^{AT}, c = AT = log 2. λc²/T + ωT is least at T = c√(λ/ω).
    weight, per_time = 0.1, 0.05
    plan = steer(
        line(0.0, 1.0), line(0.0, 2.0), segments=1, allow="A", t1=(0.2, 4.0), effort=weight, time_weight=per_time,
        tolerance=1e-6, iterations=200, dt=0.02,
    )  # fmt: skip
    c = np.log(2)
    assert bool(plan.converged)
    # The weights fade while the search goes on, so that it nears the optimum and then only arrives.
    np.testing.assert_allclose(plan.horizon, c * np.sqrt(weight / per_time), rtol=1e-2)
    assert plan.weights.edges == (0.0, float(plan.horizon))
    np.testing.assert_allclose(plan.weights.layers.A[0, 0, 0] * plan.horizon, c, rtol=1e-6)
    np.testing.assert_allclose(plan.effort, c**2 / plan.horizon, rtol=2e-6)


@pytest.mark.slow
def test_bounds_that_shut_the_target_out_leave_the_nearest_and_say_so():
    # With |A| < r for a unit of time deviations reach e^r at most: W₂ to e^c stays above e^c − e^r.
    c, r = 1.0, 0.5
    plan = steer(
        line(0.0, 1.0), line(0.0, np.exp(c)), segments=2, allow="A", bounds={"A": r}, method="gauss-newton",
        tolerance=1e-9,
    )  # fmt: skip
    nearest = np.exp(c) - np.exp(r)
    assert not bool(plan.converged)
    assert plan.stop == Stop.bounds
    assert nearest < plan.error < 1.02 * nearest
    np.testing.assert_allclose(plan.residual, np.exp(2 * c) - (np.exp(c) - plan.error) ** 2, rtol=1e-8)
    assert np.abs(plan.weights.layers.A).max() < r


@pytest.fixture(scope="module")
def newton():
    """A compiled search in one dimension with A alone, for starts and targets of any size."""
    options = {"method": "gauss-newton", "learning_rate": 0.0, "iterations": 60}

    @eqx.filter_jit
    def run(start, target, tolerance):
        problem = Problem(start, target, 1, 1.0, "A", jnp.asarray(0.0))
        search = begin(problem, problem.zero_controls(), **options)
        search, history = advance(problem, search, steps=60, tolerance=tolerance, **options)
        return search, history, why(problem, search, method="gauss-newton", tolerance=tolerance)

    return run


def test_a_search_says_that_it_met_the_tolerance(newton):
    search, history, stop = newton(line(0.0, 1.0), line(0.0, 2.0), 1e-10)
    assert stop == Stop.tolerance
    # The best so far is the smallest distance of the history, which repeats its last row to the end.
    assert float(search.distance) == history[:, 1].min()
    np.testing.assert_array_equal(history[int(search.iteration) :], history[-1:].repeat(60 - int(search.iteration), 0))


def test_a_search_that_cannot_arrive_gives_up_and_keeps_the_best(newton):
    # A alone cannot move a mean of zero.
    search, history, stop = newton(line(0.0, 1.0), line(1.0, 2.0), 1e-10)
    assert stop == Stop.stalled
    assert int(search.iteration) < 60
    np.testing.assert_allclose(search.distance, 1.0, rtol=1e-6)
    assert float(search.distance) == history[:, 1].min()


def test_searches_that_run_out_or_blow_up_say_which():
    options = {"method": "adam", "learning_rate": 0.01, "iterations": 2}

    @jax.jit
    def run(size):
        problem = Problem(line(0.0, 1.0), line(0.0, 2.0), 1, 1.0, "BV", jnp.asarray(0.0), RK4(), dt=0.05)
        controls = {name: size * jnp.ones((1, 1, 1)) for name in "BV"}
        search, _ = advance(problem, begin(problem, controls, **options), steps=2, tolerance=1e-6, **options)
        return why(problem, search, method="adam", tolerance=1e-6)

    assert run(0.1) == Stop.iterations
    assert run(20.0) == Stop.blow_up


@pytest.mark.slow
def test_adam_under_vmap_equals_the_loop():
    options = {"method": "adam", "learning_rate": 0.05, "iterations": 10}
    weight = jnp.asarray(1e-3)
    # Where a gradient vanishes Adam divides rounding by rounding: from zero controls the two need not agree.
    rng = np.random.default_rng(2)
    first = Problem(gaussian(1), gaussian(2), 2, 1.0, "ABVb", weight, curve=Lines(2)).zero_controls()
    first = jax.tree.map(lambda x: x + 0.3 * jnp.asarray(rng.normal(size=x.shape)), first)

    def run(target):
        problem = Problem(
            gaussian(1), target, 2, 1.0, "ABVb", weight, RK4(), dt=0.1, curve=Lines(2), bounds=(("A", 2.0),),
            loss_name="moments", smoothness_weight=weight,
        )  # fmt: skip
        search, history = advance(problem, begin(problem, first, **options), steps=10, tolerance=1e-9, **options)
        return search.best, history

    targets = [gaussian(seed) for seed in (2, 3)]
    together, histories = jax.jit(jax.vmap(run))(jax.tree.map(lambda *x: jnp.stack(x), *targets))
    alone = jax.jit(run)
    for i, target in enumerate(targets):
        best, history = alone(target)
        np.testing.assert_allclose(histories[i], history, rtol=1e-9)
        assert history[-1, 1] < 0.8 * history[0, 1]
        for name, x in best.items():
            np.testing.assert_allclose(together[name][i], x, atol=1e-9)


@pytest.mark.parametrize(
    ("curve", "options"),
    [
        (None, {"bounds": (("A", 2.0),)}),
        (Lines(2), {"heads": 2, "bounds": (("B", 3.0),)}),
        (Waves(1), {"horizon": (0.5, 2.0)}),
    ],
    ids=["pieces", "lines", "waves"],
)
def test_a_warm_start_begins_where_the_layers_are(curve, options):
    problem = Problem(gaussian(1), gaussian(2), 2, 1.0, "ABVb", jnp.asarray(0.0), curve=curve, **options)
    rng = np.random.default_rng(1)
    controls = jax.tree.map(lambda x: x + 0.3 * jnp.asarray(rng.normal(size=x.shape)), problem.zero_controls())
    again = with_controls(problem, problem.layers_in_time(controls))
    for name, x in controls.items():
        np.testing.assert_allclose(again[name], x, atol=1e-13)


def test_a_warm_start_of_another_kind_is_refused():
    layers = Piecewise(A=jnp.zeros((2, 2, 2)), t1=1.0)
    for options, message in (
        ({"controls": "mlp"}, "cannot be read back"),
        ({"controls": "fourier"}, "another kind"),
        ({"segments": 3}, "another size"),
    ):
        with pytest.raises(InputError, match=message):
            steer(gaussian(1), gaussian(2), warm_start=layers, **options)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"controls": "mlp", "segments": 4}, "segments"),
        ({"controls": Network(), "segments": 4}, "segments"),
        ({"controls": "fourier", "segments": 0}, "segments"),
        ({"heads": 0}, "heads"),
        ({"heads": 2, "allow": "Ab"}, "heads"),
        ({"symmetric_B": True, "allow": "AVb"}, "symmetric_B"),
        ({"bounds": {"A": 1.0}, "allow": "BVb"}, "bounds.A"),
        ({"bounds": {"C": 1.0}}, "bounds.C"),
        ({"bounds": {"A": 0.0}}, "bounds.A"),
        ({"smoothness": -1.0}, "smoothness"),
        ({"time_weight": 1.0}, "time_weight"),
        ({"t1": (1.0, 0.5)}, "t1"),
        ({"t1": (0.0, 0.5)}, "t1"),
        ({"method": "gauss-newton", "loss": "kl"}, "loss"),
        ({"method": "gauss-newton", "smoothness": 0.1}, "smoothness"),
        ({"method": "constructive", "heads": 2}, "heads"),
        ({"method": "constructive", "bounds": {"A": 1.0}}, "bounds"),
        ({"method": "constructive", "controls": "linear"}, "controls"),
        ({"method": "constructive", "t1": (0.5, 1.0)}, "t1"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_compiled(options, where):
    with pytest.raises(InputError) as caught:
        steer(gaussian(1), gaussian(2), **options)
    assert caught.value.where == where


def test_kl_of_thin_gaussians_and_free_time_under_jit_are_refused():
    with pytest.raises(InputError, match="infinite below full rank"):
        steer(gaussian(1, 2, 1), gaussian(2, 2, 1), loss="kl")
    with pytest.raises(InputError, match="full rank"):
        kl_divergence(gaussian(1, 2, 1), gaussian(2))
    with pytest.raises(InputError, match="cannot be free under jit"):
        jax.jit(lambda target: steer(gaussian(1), target, t1=(0.5, 1.0)).error)(gaussian(2))


def test_unknown_names_are_refused():
    # Under the run-time checks of the tests `steer` itself would not let them through.
    with pytest.raises(InputError, match="controls"):
        curve_of("splines", None)
    with pytest.raises(InputError, match="loss"):
        check_loss("l2", gaussian(1))


def test_effort_of_waves_by_hand():
    np.testing.assert_allclose(control.effort(Fourier(b=jnp.asarray([[3.0], [2.0], [4.0]]), t1=2.0)), 2 * (9 + 10))
