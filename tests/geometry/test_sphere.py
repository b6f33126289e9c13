"""Geodesics of the sphere against great circles written out, and the identities that define them."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxflow.geometry import Euclidean, Sphere

S = Sphere()
X = jnp.asarray(oracles.unit_rows(6, 4, seed=0))
Y = jnp.asarray(oracles.unit_rows(6, 4, seed=1))
U = jnp.asarray(oracles.general(6, 4, seed=2))


def test_the_projector_is_tangent_idempotent_and_blind_to_scale():
    P = S.project(X, U)
    np.testing.assert_allclose(jnp.sum(P * X, -1), 0, atol=1e-15)
    np.testing.assert_allclose(S.project(X, P), P, atol=1e-15)
    np.testing.assert_allclose(S.project(3.7 * X, U), P, atol=1e-15)
    for x, u, p in zip(X, U, P):
        np.testing.assert_allclose(p, (np.eye(4) - np.outer(x, x)) @ u, atol=1e-15)


def test_retraction_is_the_nearest_point():
    np.testing.assert_allclose(S.retract(0.3 * X), X, atol=1e-15)
    np.testing.assert_allclose(S.violation(1.5 * X), 0.5, atol=1e-15)
    np.testing.assert_allclose(S.violation(0.5 * X), 0.5, atol=1e-15)


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 3.1), st.floats(-np.pi, np.pi))
def test_great_circles(angle, heading):
    x = jnp.asarray([1.0, 0, 0])
    u = angle * jnp.asarray([0.0, np.cos(heading), np.sin(heading)])
    y = S.exp(x, u)
    expected = [np.cos(angle), np.sin(angle) * np.cos(heading), np.sin(angle) * np.sin(heading)]
    np.testing.assert_allclose(y, expected, atol=1e-14)
    np.testing.assert_allclose(S.log(x, y), u, atol=1e-13)
    np.testing.assert_allclose(S.distance(x, y), angle, atol=1e-14)


def test_log_and_exp_are_inverse_and_measure_the_distance():
    u = S.log(X, Y)
    np.testing.assert_allclose(S.exp(X, u), Y, atol=1e-14)
    np.testing.assert_allclose(jnp.sum(u * X, -1), 0, atol=1e-14)
    np.testing.assert_allclose(jnp.linalg.norm(u, axis=-1), S.distance(X, Y), atol=1e-14)
    np.testing.assert_allclose(S.distance(X, Y), np.arccos(np.sum(X * Y, -1)), atol=1e-14)


@pytest.mark.parametrize("small", [1e-3, 1e-8, 1e-12])
def test_distance_keeps_its_digits_near_zero_and_near_pi(small):
    x, y = jnp.asarray([1.0, 0.0]), jnp.asarray([np.cos(small), np.sin(small)])
    np.testing.assert_allclose(S.distance(x, y), small, rtol=1e-12)
    np.testing.assert_allclose(np.pi - S.distance(x, -y), small, atol=1e-15)


def test_nothing_is_nan_at_coincident_and_antipodal_points():
    x = X[:1]
    np.testing.assert_array_equal(S.log(x, x), jnp.zeros_like(x))
    assert float(S.distance(x, x)[0]) == 0
    assert float(S.distance(x, -x)[0]) == pytest.approx(np.pi, abs=1e-15)
    for f in (
        lambda y: jnp.sum(S.distance(x, y)),
        lambda y: jnp.sum(S.log(x, y)),
        lambda u: jnp.sum(S.exp(x, u)),
    ):
        assert bool(jnp.isfinite(jax.grad(f)(x)).all())
    assert bool(jnp.isfinite(jax.grad(lambda u: jnp.sum(S.exp(x, u)))(0 * x)).all())


@pytest.mark.parametrize("angle", [1e-9, 0.1, 0.722, 0.723, 0.724, 2.0, 3.0])
def test_the_squared_distance_and_its_derivatives(angle):
    """θ² on both sides of the switch at |x − y|² = ½, θ = 0.7227."""
    x = jnp.asarray([1.0, 0.0, 0.0])

    def square(t):
        return S.squared_distance(x, jnp.stack([jnp.cos(t), jnp.sin(t), jnp.zeros_like(t)]))

    found = [float(f(angle)) for f in (square, jax.grad(square), jax.grad(jax.grad(square)))]
    np.testing.assert_allclose(found, [angle**2, 2 * angle, 2.0], rtol=2e-11)


def test_squared_distances_are_smooth_at_coincidence():
    """The second derivative is twice the projector."""
    for geometry in (S, Euclidean()):

        def square(y, geometry=geometry):
            return geometry.squared_distance(X[0], geometry.retract(y))

        P = geometry.project(jnp.tile(X[:1], (4, 1)), jnp.eye(4))
        np.testing.assert_allclose(jax.jit(jax.hessian(square))(X[0]), 2 * P, atol=1e-13)
        np.testing.assert_allclose(geometry.squared_distance(X, Y), geometry.distance(X, Y) ** 2, rtol=1e-14)


def test_transport_is_an_isometry_that_keeps_what_the_geodesic_does_not_turn():
    u = S.project(X, U)
    v = S.transport(X, Y, u)
    np.testing.assert_allclose(jnp.sum(v * Y, -1), 0, atol=1e-14)
    np.testing.assert_allclose(jnp.linalg.norm(v, axis=-1), jnp.linalg.norm(u, axis=-1), rtol=1e-13)
    # The geodesic's own velocity is carried along: the reversed log at the other end.
    np.testing.assert_allclose(S.transport(X, Y, S.log(X, Y)), -S.log(Y, X), atol=1e-13)
    across = S.project(X, U) - S.log(X, Y) * jnp.sum(u * S.log(X, Y), -1, keepdims=True) / jnp.sum(
        S.log(X, Y) ** 2, -1, keepdims=True
    )
    np.testing.assert_allclose(S.transport(X, Y, across), across, atol=1e-13)


def test_everything_turns_with_the_sphere():
    Q = oracles.rotation(4)
    u = S.project(X, U)
    np.testing.assert_allclose(S.exp(X @ Q, u @ Q), S.exp(X, u) @ Q, atol=1e-14)
    np.testing.assert_allclose(S.log(X @ Q, Y @ Q), S.log(X, Y) @ Q, atol=1e-14)
    np.testing.assert_allclose(S.transport(X @ Q, Y @ Q, u @ Q), S.transport(X, Y, u) @ Q, atol=1e-14)


def test_samples_are_uniform():
    n = 20_000
    x = np.asarray(S.sample(jax.random.key(0), n, 3))
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-15)
    # Standard errors: √(1/3n) of a mean; E x⁴ = 1/5, so that x² has variance 4/45.
    assert np.abs(x.mean(0)).max() < 4 * np.sqrt(1 / 3 / n)
    assert np.abs((x**2).mean(0) - 1 / 3).max() < 4 * np.sqrt(4 / 45 / n)


def test_euclidean_space_is_flat():
    E = Euclidean()
    np.testing.assert_array_equal(E.project(X, U), U)
    np.testing.assert_array_equal(E.retract(U), U)
    np.testing.assert_array_equal(E.exp(X, U), X + U)
    np.testing.assert_array_equal(E.log(X, Y), Y - X)
    np.testing.assert_array_equal(E.transport(X, Y, U), U)
    np.testing.assert_allclose(E.distance(X, Y), np.linalg.norm(X - Y, axis=1), rtol=1e-15)
    np.testing.assert_array_equal(E.violation(U), np.zeros(6))
    x = np.asarray(E.sample(jax.random.key(0), 20_000, 2))
    assert np.abs(np.cov(x.T) - np.eye(2)).max() < 4 * np.sqrt(2 / 20_000)
