"""Steering: exact constructions, exact hits, gradients of the loss, refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxflow import control
from jaxflow.control import Problem, constant_linear, steer
from jaxflow.errors import InputError, UnreachableError
from jaxflow.gaussian import MomentFlow
from jaxflow.geometry import Euclidean
from jaxflow.measures import Gaussian, sample
from jaxflow.particles import AttentionFlow
from jaxflow.solve import RK4, Dopri8, Tsit5, solve
from jaxflow.transport import wasserstein_gaussian


def gaussian(seed, d=2, r=None):
    rng = np.random.default_rng(seed)
    r = d if r is None else r
    mean, L = rng.normal(size=d), rng.normal(size=(d, r)) / np.sqrt(d) + 0.2 * np.eye(d, r)
    return Gaussian(jnp.asarray(mean), jnp.asarray(L))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_c1_constant_linear_layer_hits_the_target_exactly(d):
    start, target = gaussian(1, d), gaussian(2, d)
    weights = constant_linear(start, target, t1=0.7)
    final = solve(MomentFlow(weights), start, t1=0.7, method=Dopri8(), rtol=1e-13, atol=1e-13).final
    scale = float(jnp.abs(target.covariance).max())
    np.testing.assert_allclose(final.mean, target.mean, atol=1e-11)
    np.testing.assert_allclose(final.covariance, target.covariance, atol=1e-11 * scale)


def test_c1_is_the_identity_between_equal_gaussians():
    start = gaussian(3)
    weights = constant_linear(start, start, t1=1.0)
    np.testing.assert_allclose(weights.layers.A, 0, atol=1e-13)
    np.testing.assert_allclose(weights.layers.b, 0, atol=1e-13)


@pytest.fixture(scope="module")
def gauss_newton():
    """A compiled search that several tests share: d = 3, four segments."""
    return eqx.filter_jit(
        lambda start, target: steer(start, target, segments=4, method="gauss-newton", tolerance=2e-11)
    )


@pytest.mark.slow
def test_gauss_newton_hits_mean_and_covariance_to_1e_10(gauss_newton):
    for seed in range(5):
        plan = gauss_newton(gaussian(10 + seed, 3), gaussian(20 + seed, 3))
        assert bool(plan.converged), seed
        assert plan.residual < 1e-10, seed
        assert plan.iterations < 60, seed


@pytest.mark.slow
def test_steering_under_vmap_equals_the_loop(gauss_newton):
    starts, targets = ([gaussian(seed + i, 3) for i in range(2)] for seed in (30, 40))
    stacked = [jax.tree.map(lambda *xs: jnp.stack(xs), *group) for group in (starts, targets)]
    together = jax.vmap(gauss_newton)(*stacked)
    for i in range(2):
        alone = gauss_newton(starts[i], targets[i])
        np.testing.assert_allclose(together.weights.layers.A[i], alone.weights.layers.A, atol=1e-8)
        assert together.iterations[i] == alone.iterations


@pytest.mark.slow
def test_rank_deficient_gaussians_are_steered_within_their_rank():
    start, target = gaussian(5, 3, 1), gaussian(6, 3, 1)
    plan = steer(start, target, segments=3, method="gauss-newton", tolerance=1e-9)
    assert bool(plan.converged)
    final = solve(MomentFlow(plan.weights), start, t1=1.0, method=Dopri8(), rtol=1e-12, atol=1e-12).final
    assert wasserstein_gaussian(final, target) < 1e-8


@pytest.mark.slow
def test_adam_arrives_and_its_layers_move_tokens_to_the_target():
    start = Gaussian(jnp.array([-0.5, 0.0]), jnp.array([[0.4, 0.0], [0.1, 0.3]]))
    target = Gaussian(jnp.array([0.5, 0.3]), jnp.array([[0.25, 0.0], [-0.1, 0.4]]))
    plan = steer(start, target, segments=4, method="adam", tolerance=1e-3, iterations=600, dt=0.05)
    assert bool(plan.converged)
    assert plan.error**2 <= 1e-6
    assert plan.history.shape == (600, 2)
    tokens = sample(start, jax.random.key(0), n=1500)
    flow = AttentionFlow(plan.weights, geometry=Euclidean())
    landed = solve(flow, tokens, t1=1.0, method=RK4(), dt=0.05).final
    found = Gaussian.from_covariance(landed.mean, landed.covariance)
    # 1500 true samples of the target miss it by about 0.016 in W₂.
    assert wasserstein_gaussian(found, target) < 0.05


@pytest.mark.slow
def test_lbfgs_with_attention_alone_steers_the_covariance():
    start = Gaussian(jnp.zeros(2), jnp.array([[0.5, 0.0], [0.0, 0.3]]))
    target = Gaussian(jnp.zeros(2), jnp.array([[0.3, 0.0], [0.1, 0.4]]))
    plan = steer(start, target, segments=2, allow="BV", method="lbfgs", tolerance=1e-3, iterations=100, dt=0.05)
    assert bool(plan.converged)
    assert plan.weights.layers.A is None
    assert plan.weights.layers.b is None


def loss_of(problem):
    return lambda controls: problem.loss(controls, problem.effort_weight)[0]


@pytest.mark.parametrize(
    "options",
    [{"method": Tsit5(), "rtol": 1e-11, "atol": 1e-11}, {"method": RK4(), "dt": 0.05}],
    ids=["adaptive", "fixed"],
)
def test_gradient_of_the_steering_loss_agrees_with_finite_differences_to_1e_6(options):
    problem = Problem(gaussian(7), gaussian(8), 3, 1.0, "ABVb", jnp.asarray(1e-2), **options)
    rng = np.random.default_rng(0)
    controls = {name: x + 0.2 * jnp.asarray(rng.normal(size=x.shape)) for name, x in problem.zero_controls().items()}
    direction = {name: jnp.asarray(rng.normal(size=x.shape)) for name, x in controls.items()}
    loss = jax.jit(loss_of(problem))

    def along(h):
        return loss(jax.tree.map(lambda x, u: x + h * u, controls, direction))

    def difference(h):
        return (along(h) - along(-h)) / (2 * h)

    gradient = jax.jit(jax.grad(loss_of(problem)))(controls)
    exact = sum(jnp.sum(gradient[name] * direction[name]) for name in controls)
    richardson = (4 * difference(5e-4) - difference(1e-3)) / 3
    assert abs(richardson / exact - 1) < 1e-6


def test_the_loss_of_a_blow_up_is_finite_and_its_gradient_leads_back():
    problem = Problem(gaussian(7), gaussian(8), 2, 1.0, "BV", jnp.asarray(1e-2))
    controls = {name: 20 * jnp.broadcast_to(jnp.eye(2), (2, 2, 2)) for name in ("B", "V")}
    value, gradient = jax.jit(jax.value_and_grad(loss_of(problem)))(controls)
    assert np.isfinite(value)
    assert all(float(jnp.sum(gradient[name] * controls[name])) > 0 for name in controls)


def test_effort_is_the_time_integral_of_the_squared_norms():
    problem = Problem(gaussian(7), gaussian(8), 4, 2.0, "Ab", jnp.asarray(0.0))
    controls = {"A": jnp.ones((4, 2, 2)), "b": 3 * jnp.ones((4, 2))}
    assert abs(control.effort(problem.weights(controls)) - 2.0 * (4 + 18)) < 1e-13


@pytest.mark.parametrize(
    ("target", "allow", "word"),
    [
        (Gaussian(jnp.zeros(2), jnp.array([[1.0], [0.5]])), "ABVb", "rank"),
        (Gaussian(jnp.zeros(2), 2 * jnp.eye(2)), "Bb", "covariance is constant"),
        (Gaussian(jnp.zeros(2), 2 * jnp.eye(2)), "Vb", "covariance is constant"),
        (Gaussian(jnp.ones(2), 2 * jnp.eye(2)), "ABV", "mean of zero stays zero"),
        (Gaussian(jnp.ones(2), 2 * jnp.eye(2)), "A", "mean of zero stays zero"),
        (Gaussian(jnp.zeros(3), jnp.eye(3)), "ABVb", "dimension"),
    ],
)
def test_unreachable_targets_are_refused_with_the_invariant_named(target, allow, word):
    start = Gaussian(jnp.zeros(2), jnp.eye(2))
    with pytest.raises(UnreachableError, match=r"unreachable|dimension") as caught:
        steer(start, target, allow=allow)
    assert word in str(caught.value)


def test_without_attention_and_bias_the_mahalanobis_length_of_the_mean_stays():
    with pytest.raises(UnreachableError, match=r"μᵀΣ⁺μ is invariant"):
        steer(Gaussian(jnp.array([1.0, 0.0]), jnp.eye(2)), Gaussian(jnp.ones(2), 2 * jnp.eye(2) + 1), allow="A")


def test_mean_outside_the_range_stays_outside_without_bias_and_values():
    inside = Gaussian(jnp.array([1.0, 0.5]), jnp.array([[2.0], [1.0]]))
    outside = Gaussian(jnp.array([1.0, 0.0]), jnp.array([[2.0], [1.0]]))
    with pytest.raises(UnreachableError, match="range of the covariance"):
        control.check_reachable(outside, inside, "A")
    control.check_reachable(outside, inside, "Ab")


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"allow": ""}, "allow"),
        ({"allow": "AX"}, "allow"),
        ({"t1": 0.0}, "t1"),
        ({"segments": 0}, "segments"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"effort": -1.0}, "effort"),
        ({"method": "constructive", "allow": "BVb"}, "method"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_compiled(options, where):
    with pytest.raises(InputError) as caught:
        steer(gaussian(1), gaussian(2), **options)
    assert caught.value.where == where


def test_constructive_steering_of_a_thin_gaussian_needs_two_segments():
    with pytest.raises(InputError, match="at least 2"):
        steer(gaussian(1, 2, 1), gaussian(2, 2, 1), method="constructive", segments=1)


def test_without_bias_a_mean_keeps_its_sign_in_one_dimension():
    left, right = (Gaussian(jnp.array([m]), jnp.ones((1, 1))) for m in (-1.0, 1.0))
    with pytest.raises(UnreachableError, match="sign"):
        control.check_reachable(left, right, "ABV")
    control.check_reachable(left, right, "ABVb")
