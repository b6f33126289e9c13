"""Several Gaussians: one after the other along one flow, a path of them, and many at once under one control."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.optimize import minimize

from jaxflow.control import Stop, steer, steer_many, steer_through, track
from jaxflow.control.frame import frame_of
from jaxflow.control.robust import Many
from jaxflow.errors import InputError, UnreachableError
from jaxflow.measures import Gaussian


def gaussian(seed, d=2, r=None):
    rng = np.random.default_rng(seed)
    r = d if r is None else r
    mean, L = rng.normal(size=d), rng.normal(size=(d, r)) / np.sqrt(d) + 0.2 * np.eye(d, r)
    return Gaussian(jnp.asarray(mean), jnp.asarray(L))


def along(weights, start, times):
    """Mean and covariance at these times by DOP853."""
    edges, layers, d = weights.edges, weights.layers, start.dim
    A, B, V, b = (None if x is None else np.asarray(x) for x in (layers.A, layers.B, layers.V, layers.b))

    def layer_at(t):
        k = min(int(np.searchsorted(edges, t, side="right")) - 1, len(edges) - 2)
        heads = [] if B is None else [(1.0, B[k, 0], V[k, 0])]  # pyright: ignore[reportOptionalSubscript]
        return np.zeros((d, d)) if A is None else A[k], np.zeros(d) if b is None else b[k], heads

    return oracles.moments(np.asarray(start.mean), np.asarray(start.covariance), layer_at, times, edges=edges[:-1])


@pytest.mark.slow
@pytest.mark.parametrize(("d", "r"), [(2, 2), (3, 1)])
def test_every_stop_is_hit_by_one_flow_through_all_of_them(d, r):
    stops, times = [gaussian(i, d, r) for i in range(4)], [0.0, 0.5, 1.3, 2.0]
    plan = eqx.filter_jit(steer_through)(stops, times)
    assert bool(plan.converged)
    assert plan.residual < 1e-10
    assert bool(plan.stop == Stop.tolerance)
    for stop, (mean, covariance) in zip(stops[1:], along(plan.weights, stops[0], times[1:]), strict=True):
        np.testing.assert_allclose(mean, stop.mean, atol=1e-9)
        np.testing.assert_allclose(covariance, stop.covariance, atol=1e-9)


@pytest.mark.slow
def test_written_down_legs_hit_every_stop_and_pay_what_they_say():
    stops, times = [gaussian(i, 3, 2) for i in range(4)], [0.0, 0.5, 1.3, 2.0]
    plan = steer_through(stops, times, segments=2, method="constructive")
    for stop, (mean, covariance) in zip(stops[1:], along(plan.weights, stops[0], times[1:]), strict=True):
        np.testing.assert_allclose(mean, stop.mean, atol=1e-9)
        np.testing.assert_allclose(covariance, stop.covariance, atol=1e-9)
    layers, lengths = plan.weights.layers, np.diff(plan.weights.edges)
    paid = lengths * (np.sum(np.asarray(layers.A) ** 2, (1, 2)) + np.sum(np.asarray(layers.b) ** 2, 1))
    np.testing.assert_allclose(plan.efforts, paid.reshape(3, 2).sum(1), rtol=1e-12)
    assert bool(plan.stop == Stop.closed_form)
    with pytest.raises(InputError, match="plans of track"):
        _ = plan.tracking_error


@pytest.mark.slow
def test_two_stops_are_steering():
    start, target = gaussian(1), gaussian(2)
    plan = steer_through([start, target], [0.0, 1.0], segments=3)
    same = steer(start, target, segments=3, method="gauss-newton", tolerance=1e-11)
    for x, y in zip(jax.tree.leaves(plan.weights), jax.tree.leaves(same.weights), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-10)


def turning(t):
    c, s = np.cos(2 * t), np.sin(2 * t)
    L = np.array([[c, -s], [s, c]]) @ np.diag([1 + 0.5 * t, 0.4 + 0.2 * np.sin(4 * t)])
    return Gaussian(jnp.array([np.sin(3 * t), np.cos(t)]), jnp.asarray(L))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["constructive", "gauss-newton"])
def test_a_path_is_followed_to_second_order_in_the_number_of_stops(method):
    plans = [track(turning, times=m, method=method) for m in (4, 12)]
    assert max(float(plan.residual) for plan in plans) < 1e-9
    errors = [float(plan.tracking_error) for plan in plans]
    assert oracles.order([1 / 4, 1 / 12], errors) > 1.8
    # W₂ halfway, seen by DOP853: the mean alone is no more.
    ((mean, _),) = along(plans[0].weights, turning(0.0), (0.125,))
    gap = np.linalg.norm(mean - np.asarray(turning(0.125).mean))
    assert 0 < gap <= float(plans[0].between[0]) + 1e-9  # pyright: ignore[reportOptionalSubscript]


def test_stops_that_cannot_be_are_refused():
    a, b, thin = gaussian(1), gaussian(2), gaussian(3, 2, 1)
    with pytest.raises(UnreachableError, match=r"stops\[2\](.|\n)*rank 1(.|\n)*rank 2, that of stops\[1\]"):
        steer_through([a, b, thin], [0.0, 1.0, 2.0])
    with pytest.raises(InputError, match="at least two"):
        steer_through([a], [0.0])
    for times in ([0.0, 1.0, 1.0], [0.5, 1.0, 2.0], [0.0, 2.0, 1.0], [0.0, float("nan"), 1.0]):
        with pytest.raises(InputError, match="must increase"):
            steer_through([a, b, a], times)
    with pytest.raises(InputError, match="one for every stop"):
        steer_through([a, b], [0.0, 1.0, 2.0])
    with pytest.raises(InputError, match="times"):
        track(turning, times=0)


@pytest.mark.slow
def test_one_attention_control_steers_two_gaussians_to_two_targets():
    starts, targets = [gaussian(0), gaussian(1)], [gaussian(2), gaussian(3)]
    plan = eqx.filter_jit(steer_many)(starts, targets, segments=8, tolerance=2e-10)
    assert bool(plan.converged)
    assert bool(plan.stop == Stop.tolerance)
    for start, target in zip(starts, targets, strict=True):
        ((mean, covariance),) = along(plan.weights, start, (1.0,))
        np.testing.assert_allclose(mean, target.mean, atol=1e-9)
        np.testing.assert_allclose(covariance, target.covariance, atol=1e-9)


def normal(mean, deviation):
    return Gaussian(jnp.array([mean]), jnp.array([[deviation]]))


@pytest.mark.slow
def test_linear_layers_move_all_by_one_affine_map_and_the_rest_is_reported():
    first, last = [(0.0, 1.0), (2.0, 0.5), (-1.0, 0.8)], [(1.0, 0.7), (1.5, 0.9), (-2.0, 0.6)]

    def left(z):
        a, b = z
        return sum(
            ((a * m + b - n) / t) ** 2 + 0.25 * ((a * s / t) ** 2 - 1) ** 2 for (m, s), (n, t) in zip(first, last)
        )

    floor = minimize(left, [1.0, 0.0], method="BFGS", options={"gtol": 1e-10})
    plan = steer_many([normal(*g) for g in first], [normal(*g) for g in last], segments=2, allow="Ab")
    assert not bool(plan.converged)
    assert bool(plan.stop == Stop.stalled)
    np.testing.assert_allclose(plan.objective, floor.fun, rtol=1e-7)
    a, b = floor.x
    # W₂ of normals on the line, at the best map.
    distances = [np.hypot(a * m + b - n, a * s - t) for (m, s), (n, t) in zip(first, last)]
    np.testing.assert_allclose(plan.errors, distances, rtol=1e-3)


def test_what_no_control_can_separate_is_refused():
    a, b, c = gaussian(1), gaussian(2), gaussian(3)
    with pytest.raises(UnreachableError, match=r"targets\[1\](.|\n)*starts 0 and 1 agree"):
        steer_many([a, a], [b, c])
    moved = Gaussian(b.mean + 1.0, b.factor)
    with pytest.raises(UnreachableError, match="no control separates equal Gaussians"):
        steer_many([a, a], [b, moved])
    elsewhere = Gaussian(a.mean + 1.0, a.factor)
    with pytest.raises(UnreachableError, match="equal covariances stay equal"):
        steer_many([a, elsewhere], [b, c])
    with pytest.raises(UnreachableError, match=r"targets\[1\](.|\n)*rank 1(.|\n)*that of starts\[1\]"):
        steer_many([a, b], [c, gaussian(3, 2, 1)])
    with pytest.raises(InputError, match="one target for every start"):
        steer_many([a, b], [c])
    with pytest.raises(InputError, match=r"starts\[1\](.|\n)*rank"):
        steer_many([a, gaussian(3, 2, 1)], [b, gaussian(4, 2, 1)])


def test_the_residuals_of_a_pair_are_its_misses_in_deviations_of_the_target():
    """|c|² = |W(μ − μ*)|² + ¼|WΣWᵀ − I|², W = diag(1/s)Uᵀ for the factor U diag(s) Vᵀ of the target."""
    end, target = gaussian(1, 3), gaussian(2, 3)
    U, s, _ = np.linalg.svd(target.factor)
    W = U.T / s[:, None]
    S = W @ end.covariance @ W.T
    expected = np.sum((W @ (end.mean - target.mean)) ** 2) + np.sum((S - np.eye(3)) ** 2) / 4
    found = Many.residuals(None, frame_of(target).W, end, target)
    np.testing.assert_allclose(jnp.sum(found**2), expected, rtol=1e-12)
