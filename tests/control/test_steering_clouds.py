"""Steering clouds: arrivals measured by the exact distance, the known optimum, derivatives, resuming, refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.integrate import solve_ivp

from jaxflow.control import (
    Stop,
    TokenProblem,
    advance_tokens,
    begin_tokens,
    check_tokens_reachable,
    make_token_plan,
    steer_tokens,
)
from jaxflow.errors import InputError, UnreachableError
from jaxflow.geometry import Euclidean, Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow
from jaxflow.solve import Euler, Heun, Tsit5, solve
from jaxflow.transport import sliced_wasserstein, wasserstein_clouds
from jaxflow.weights import Piecewise


def cap(centre, n, seed, spread=0.35):
    """n tokens of the sphere around a point."""
    return Cloud(Sphere().retract(jnp.asarray(np.asarray(centre) + spread * oracles.general(n, 3, seed=seed))))


def ring(n, height=0.5):
    """n tokens at one height above the equator."""
    angle, radius = 2 * np.pi * np.arange(n) / n, np.sqrt(1 - height**2)
    return Cloud(jnp.asarray(np.stack([radius * np.cos(angle), radius * np.sin(angle), np.full(n, height)], 1)))


def plane_cloud(n, seed, shift=0.0):
    weights = jnp.asarray(oracles.weights(n, seed=seed))
    return Cloud.from_weights(jnp.asarray(oracles.general(n, 2, seed=seed)) + shift, weights)


# --- arriving -------------------------------------------------------------------------------------------------------


def test_the_best_bias_is_the_shift_of_the_means():
    """SW₂² = |shift of the means|²/d + SW₂² of the centred clouds: b alone can only move the first term to zero."""
    start, target = plane_cloud(7, 1), plane_cloud(5, 2, shift=0.8)
    options = {
        "segments": 2,
        "t1": 1.5,
        "allow": "b",
        "effort": 0.0,
        "tolerance": 1e-6,
        "iterations": 20,
        "dt": 0.75,
        "integrator": Euler(),
    }
    plan = steer_tokens(start, target, geometry=Euclidean(), **options)
    shift = target.mean - start.mean
    moved = jnp.sum(plan.weights.layers.b, axis=0) * 0.75
    np.testing.assert_allclose(moved, shift, atol=1e-8)
    np.testing.assert_allclose(plan.ends[0].points, start.points + shift[None], atol=1e-8)
    centred = sliced_wasserstein(Cloud(start.points + shift[None], start.log_weights), target)
    np.testing.assert_allclose(plan.distance, centred, rtol=1e-10)
    assert not bool(plan.converged)
    assert plan.reason in ("stalled", "iterations")


def test_a_translate_is_hit():
    start = plane_cloud(7, 1)
    target = Cloud(start.points + jnp.array([[1.0, -0.5]]), start.log_weights)
    options = {
        "segments": 2,
        "allow": "b",
        "effort": 0.0,
        "tolerance": 1e-9,
        "iterations": 20,
        "dt": 0.5,
        "integrator": Euler(),
    }
    plan = steer_tokens(start, target, geometry=Euclidean(), **options)
    assert bool(plan.converged)
    assert plan.stop == Stop.tolerance
    assert wasserstein_clouds(plan.ends[0], target) < 1e-8
    # The cheapest b that arrives is constant: |shift|²/t₁, and L-BFGS from zero finds that one.
    np.testing.assert_allclose(plan.effort, 1.25, rtol=1e-6)


@pytest.mark.slow
def test_two_clouds_reach_two_targets_on_the_sphere_under_one_control():
    """A cap becomes a ring and another one two caps, by one layer with two heads that changes four times. A cap and
    a ring are 1.2 apart in W₂; tokens of the ring lie 0.72 from their neighbours."""
    n = 10
    halves = Cloud(jnp.concatenate([cap([1, 1, -0.5], 5, 3, 0.2).points, cap([-0.2, 0.5, -1], 5, 4, 0.2).points]))
    starts, targets = [cap([1, 0, 0], n, 1), cap([0, 1, 0], n, 2)], [ring(n), halves]
    before = [wasserstein_clouds(*pair, geometry=Sphere()) for pair in zip(starts, targets)]
    plan = eqx.filter_jit(steer_tokens)(
        starts, targets, segments=4, heads=2, key=jax.random.key(0), tolerance=0.075, iterations=150, integrator=Heun()
    )
    assert bool(plan.converged), plan.distances
    assert plan.weights.layers.V.shape == (4, 2, 3, 3)
    assert plan.history[0, 1] > 0.5
    # Moved again, by adaptive steps, and measured by the exact distance along great circles.
    flow = AttentionFlow(plan.weights, geometry=Sphere())
    for start, target, end, far in zip(starts, targets, plan.ends, before):
        final = solve(flow, start, t1=1.0, method=Tsit5(), rtol=1e-8, atol=1e-8).final
        # The plan's own ends are those of half the step of the search, a twentieth.
        halved = solve(flow, start, t1=1.0, method=Heun(), dt=0.025).final
        np.testing.assert_allclose(halved.points, end.points, atol=1e-10)
        assert wasserstein_clouds(final, target, geometry=Sphere()) < 0.25 * far
        assert wasserstein_clouds(final, target, geometry=Sphere()) < 0.2


# --- the objective --------------------------------------------------------------------------------------------------


def random_controls(problem, seed=0, scale=0.4):
    rng = np.random.default_rng(seed)
    first = problem.first_controls(None)
    return {name: x + scale * jnp.asarray(rng.normal(size=x.shape)) for name, x in first.items()}


def two_pairs(geometry):
    """On the sphere of equal shapes, traced once; in the plane of different ones."""
    if isinstance(geometry, Sphere):
        return (cap([1, 0, 0], 5, 1), cap([0, 1, 0], 5, 2)), (cap([0, 0, 1], 6, 3), ring(6))
    return (plane_cloud(5, 1), plane_cloud(4, 2)), (plane_cloud(6, 3, 0.5), plane_cloud(5, 4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("geometry", "loss", "law"), [(Sphere(), "sliced", "softmax"), (Euclidean(), "energy", "unnormalized")]
)
def test_the_gradient_of_the_objective_against_differences(geometry, loss, law):
    starts, targets = two_pairs(geometry)
    how = {"loss": loss, "geometry": geometry, "law": law, "dt": 0.5, "method": Heun()}
    problem = TokenProblem(starts, targets, 2, 1.0, "ABVb", 2, jnp.asarray(1e-2), **how)
    controls, direction = random_controls(problem, scale=0.2), random_controls(problem, 1)

    @jax.jit
    def along(s):
        moved = jax.tree.map(lambda x, u: x + s * u, controls, direction)
        return problem.objective(moved, problem.effort_weight)[0]

    np.testing.assert_allclose(jax.jit(jax.grad(along))(0.0), oracles.derivative(along, 0.0, step=2e-5), rtol=1e-6)


def test_the_objective_is_the_mean_over_pairs_each_attending_to_itself():
    """Each cloud alone by the double loop and DOP853: distances agree, their squares are averaged, the effort adds."""
    starts, targets = two_pairs(Sphere())
    problem = TokenProblem(starts, targets, 2, 1.0, "ABVb", 2, jnp.asarray(0.3), dt=0.05)
    controls = random_controls(problem)
    value, distances = eqx.filter_jit(problem.objective)(controls, problem.effort_weight)
    c = {name: np.asarray(x) for name, x in controls.items()}

    def moved(cloud):
        x, w = np.asarray(cloud.points), np.asarray(cloud.weights)
        for k in range(2):
            heads = [(1.0, c["B"][k, h], c["V"][k, h]) for h in range(2)]
            layer = {"A": c["A"][k], "b": c["b"][k]}

            def right(t, z, heads=heads, layer=layer):
                return oracles.velocity(z.reshape(-1, 3), w, heads, **layer).ravel()

            x = solve_ivp(right, (0, 0.5), x.ravel(), method="DOP853", rtol=1e-8, atol=1e-10).y[:, -1].reshape(-1, 3)
        return Cloud(jnp.asarray(x))

    found = [sliced_wasserstein(moved(start), target) for start, target in zip(starts, targets)]
    np.testing.assert_allclose(distances, found, rtol=1e-5)
    spent = 0.5 * sum(np.sum(x**2) for x in c.values())
    np.testing.assert_allclose(value, np.mean(np.asarray(distances) ** 2) + 0.3 * spent, rtol=1e-12)


@pytest.mark.slow
def test_the_gradient_takes_little_memory_however_many_steps():
    """2000 steps with 2 × 100 tokens and 2 heads: the pairs of all of them would take 640 MB."""
    starts, targets = (cap([1, 0, 0], 100, 1), cap([0, 1, 0], 100, 2)), (ring(100), cap([0, 0, 1], 100, 3))

    def temporary(steps):
        problem = TokenProblem(starts, targets, 4, 1.0, "ABVb", 2, jnp.asarray(1e-2), dt=1 / steps, method=Euler())
        gradient = jax.jit(jax.grad(lambda controls: problem.objective(controls, problem.effort_weight)[0]))
        return gradient.lower(problem.first_controls(None)).compile().memory_analysis().temp_size_in_bytes

    few, many = temporary(20), temporary(2000)
    assert many < 2**25
    assert many < 3 * few


# --- the search -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    """A problem, options and a compiled `advance` that several tests share."""
    starts, targets = (cap([1, 0, 0], 5, 1), cap([0, 1, 0], 5, 2)), (cap([0, 0, 1], 5, 3), cap([1, 1, 0], 5, 4))
    problem = TokenProblem(starts, targets, 2, 1.0, "BVb", 2, jnp.asarray(1e-3), dt=0.5, loss="energy", method=Euler())
    options = {"method": "adam", "learning_rate": 0.1, "iterations": 8}
    advance = eqx.filter_jit(
        lambda search, steps: advance_tokens(problem, search, steps=steps, tolerance=1e-3, **options)
    )
    return problem, options, advance


@pytest.mark.slow
def test_a_search_in_pieces_is_the_search_in_one(small):
    problem, options, advance = small
    first = begin_tokens(problem, problem.first_controls(jax.random.key(0)), **options)
    whole, history = advance(first, 8)
    half, early = advance(first, 4)
    rest, late = advance(half, 4)
    # Eight steps and four are two programs, which may add in another order; a run that is resumed meets the same one.
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(rest)):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(history, jnp.concatenate([early, late]), rtol=1e-13)
    assert int(whole.iteration) == 8
    # The best is the best of what the history saw.
    np.testing.assert_array_equal(whole.distance, history[:, 1].min())
    plan = make_token_plan(problem, whole, history, tolerance=1e-3)
    assert plan.reason == "iterations"


@pytest.mark.slow
def test_steering_under_vmap_over_keys_equals_the_loop(small):
    problem, options, advance = small
    keys = jax.random.split(jax.random.key(1), 2)

    def search(key):
        return advance(begin_tokens(problem, problem.first_controls(key), **options), 4)[0]

    together = jax.vmap(search)(keys)
    for i in range(2):
        alone = search(keys[i])
        np.testing.assert_allclose(together.distances[i], alone.distances, rtol=1e-9)
    assert float(jnp.abs(together.distances[0] - together.distances[1]).max()) > 1e-6


def test_a_search_that_begins_where_tokens_overflow_comes_back():
    """e^{900} in a Euclidean cloud: no NaN reaches the controls, and halving them on the way back ends the overflow."""
    start, target = plane_cloud(5, 1), plane_cloud(5, 2, shift=0.5)
    wild = Piecewise(A=900.0 * jnp.eye(2)[None], b=jnp.zeros((1, 2)), t1=1.0)
    options = {
        "segments": 1,
        "allow": "Ab",
        "geometry": Euclidean(),
        "dt": 0.001,
        "warm_start": wild,
        "integrator": Euler(),
    }
    plan = eqx.filter_jit(steer_tokens)(start, target, iterations=12, method="adam", **options)
    assert bool(jnp.isinf(plan.history[0, 1]))
    assert bool(jnp.isfinite(plan.distance))
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves((plan.weights, plan.ends)))
    lost = eqx.filter_jit(steer_tokens)(start, target, iterations=1, method="adam", **options)
    assert lost.reason == "nonfinite"
    assert bool(jnp.isinf(lost.distance))
    assert not bool(lost.converged)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves((lost.weights, lost.ends)))


def test_a_warm_start_goes_on_from_its_layers():
    start = plane_cloud(7, 1)
    target = Cloud(start.points + 1.0, start.log_weights)
    options = {"segments": 2, "allow": "b", "geometry": Euclidean(), "dt": 0.5, "effort": 0.0, "tolerance": 1e-9}
    options |= {"integrator": Euler()}
    answer = Piecewise(b=jnp.ones((2, 2)), t1=1.0)
    plan = steer_tokens(start, target, warm_start=answer, **options)
    assert int(plan.iterations) == 1
    assert bool(plan.converged)
    with pytest.raises(InputError, match="begins from warm_start"):
        steer_tokens(start, target, warm_start=answer, key=jax.random.key(0), **options)
    with pytest.raises(InputError) as caught:
        steer_tokens(start, target, warm_start=Piecewise(b=jnp.ones((3, 2)), t1=1.0), **options)
    assert caught.value.where == "warm_start.b"


# --- refusals -------------------------------------------------------------------------------------------------------


X, Y = cap([1, 0, 0], 5, 1), cap([0, 1, 0], 5, 2)


@pytest.mark.parametrize(
    ("start", "target", "options", "where"),
    [
        ([X, Y], [X], {}, "start, target"),
        ([], [], {}, "start, target"),
        (X, Cloud(X.points[:, :2]), {}, "target.points"),
        ([X, Y], [Y, Cloud(2 * X.points)], {}, "target[1].points"),
        (Cloud(X.points.at[0, 0].set(jnp.nan)), Y, {}, "start.points"),
        (X, Y, {"allow": ""}, "allow"),
        (X, Y, {"allow": "B"}, "allow"),
        (X, Y, {"t1": 0.0}, "t1"),
        (X, Y, {"segments": 0}, "segments"),
        (X, Y, {"heads": 0}, "heads"),
        (X, Y, {"heads": 2}, "key"),
        (X, Y, {"heads": 2, "allow": "Ab"}, "heads"),
        (X, Y, {"tolerance": 0.0}, "tolerance"),
        (X, Y, {"effort": -1.0}, "effort"),
        (X, Y, {"dt": 0.0}, "dt"),
        (X, Y, {"iterations": 0}, "iterations"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_compiled(start, target, options, where):
    with pytest.raises(InputError) as caught:
        steer_tokens(start, target, **options)
    assert caught.value.where == where


def test_equal_starts_with_different_targets_are_unreachable():
    again = Cloud(X.points[::-1])
    with pytest.raises(UnreachableError, match="cannot separate equal measures") as caught:
        steer_tokens([X, Y, again], [X, Y, Y], allow="b")
    assert caught.value.where == "target[2]"
    assert "start[0] = start[2]" in str(caught.value)
    check_tokens_reachable((X, Y, again), (Y, X, Cloud(Y.points[::-1])), "b")
    # A point written twice is the measure all the same.
    twice = Cloud.from_weights(jnp.concatenate([X.points, X.points[:1]]), jnp.array([0.4, 1, 1, 1, 1, 0.6]))
    with pytest.raises(UnreachableError, match="equal measures"):
        check_tokens_reachable((X, twice), (X, Y), "ABVb")


def test_without_bias_mirror_images_stay_mirror_images():
    mirror = Cloud(-X.points)
    with pytest.raises(UnreachableError, match="mirror images"):
        check_tokens_reachable((X, mirror), (X, Y), "ABV")
    check_tokens_reachable((X, mirror), (Y, Cloud(-Y.points)), "ABV")
    check_tokens_reachable((X, mirror), (X, Y), "ABVb")
    symmetric = Cloud(jnp.concatenate([X.points, -X.points]))
    with pytest.raises(UnreachableError, match=r"start\[0\] = −start\[0\]"):
        check_tokens_reachable((symmetric,), (Y,), "ABV")


def test_mirror_images_do_stay_mirror_images():
    """The invariant behind the refusal, seen under general layers without b."""
    problem = TokenProblem((X, Cloud(-X.points)), (X, Y), 2, 1.0, "ABV", 2, jnp.asarray(0.0), dt=0.25)
    ends, _, _ = eqx.filter_jit(problem.arrive)(random_controls(problem))
    np.testing.assert_allclose(ends[0].points, -ends[1].points, atol=1e-14)
