"""Controls in closed form: they hit the target to rounding, at every rank, and the geodesic costs W₂² exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.linalg import expm

from jaxflow import control
from jaxflow.errors import InputError, UnreachableError
from jaxflow.gaussian import MomentFlow
from jaxflow.measures import Gaussian
from jaxflow.solve import Tsit5, solve
from jaxflow.transport import wasserstein_squared
from jaxflow.weights import Piecewise

PAIRS = [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (7, 4), (7, 7), (16, 1), (16, 9), (16, 16)]


def pair(d, r, seed=0):
    rng = np.random.default_rng([7, d, r, seed])
    return [
        Gaussian(
            jnp.asarray(rng.normal(size=d)), jnp.asarray(rng.normal(size=(d, r)) / np.sqrt(d) + 0.4 * np.eye(d, r))
        )
        for _ in range(2)
    ]


def end_by_dop853(schedule, start, t1=1.0):
    """Where the schedule leads, by SciPy from the Σ form of equation (1.1)."""
    at = jax.jit(lambda t: schedule.at(t))  # noqa: PLW0108 - a schedule has no hash

    def layer_at(t):
        layer = at(t)
        d = start.dim
        A = np.zeros((d, d)) if layer.A is None else np.asarray(layer.A)
        heads = [] if layer.B is None else [(1.0, np.asarray(layer.B[0]), np.asarray(layer.V[0]))]
        return A, np.asarray(layer.b), heads

    given = np.asarray(start.mean), np.asarray(start.covariance)
    return oracles.moments(*given, layer_at, (t1,), edges=schedule.edges if isinstance(schedule, Piecewise) else ())[0]


def exactly(start, target, schedule, t1=1.0):
    """The largest error in mean and covariance relative to the larger of the two Gaussians, by matrix exponentials."""
    mean, L = np.asarray(start.mean), np.asarray(start.factor)
    d = len(mean)
    for A, b, h in zip(schedule.layers.A, schedule.layers.b, np.diff(schedule.edges)):
        M = np.zeros((d + 1, d + 1))
        M[:d, :d], M[:d, d] = A, b
        E = expm(h * M)
        mean, L = E[:d, :d] @ mean + E[:d, d], E[:d, :d] @ L
    size = max(np.abs(g.covariance).max() for g in (start, target))
    far = max(np.abs(g.mean).max() for g in (start, target))
    gaps = np.abs(mean - target.mean).max() / far, np.abs(L @ L.T - target.covariance).max() / size
    return float(max(gaps))


@pytest.mark.parametrize("d", [2, 5, 16])
def test_c1_is_exact_to_1e_12(d):
    start, target = pair(d, d)
    assert exactly(start, target, control.constant_linear(start, target, t1=0.7, segments=3)) < 1e-12


@pytest.mark.parametrize(("d", "r"), PAIRS)
def test_c2_is_exact_to_1e_12_at_every_rank(d, r):
    start, target = pair(d, r)
    for segments in (2, 5):
        weights = control.two_piece_linear(start, target, t1=1.3, segments=segments)
        assert exactly(start, target, weights) < 1e-12
        assert weights.edges[-1] == 1.3
    turn = np.asarray(weights.layers.A[-1])
    np.testing.assert_allclose(turn, -turn.T, atol=1e-12)


def test_c2_turns_by_pi_where_it_must():
    # G = diag(−1, −1) is a rotation by π: eigenvalues −1 pair up.
    start, target = Gaussian(jnp.zeros(2), jnp.eye(2)[:, :1]), Gaussian(jnp.ones(2), -2 * jnp.eye(2)[:, :1])
    assert exactly(start, target, control.two_piece_linear(start, target, t1=1.0)) < 1e-12


@pytest.mark.parametrize("kind", ["two pieces", "geodesic"])
@pytest.mark.parametrize(("d", "r"), [(2, 2), (3, 2), (5, 1)])
def test_c3_gives_every_gaussian_on_the_way_the_velocity_that_the_linear_layers_give_it(kind, d, r):
    start, target = pair(d, r)
    linear = {"two pieces": control.two_piece_linear, "geodesic": control.geodesic}[kind](start, target, t1=1.0)
    weights = control.attention_only(linear, start)
    for t in (0.0, 0.3, 0.7):
        now = at_time(linear, start, t)
        attention, straight = weights.at(t), linear.at(t)
        assert attention.A is None
        (dmu, dL), (dmu_linear, dL_linear) = (
            MomentFlow(linear).field(t, now, layer)[0] for layer in (attention, straight)
        )
        size = float(jnp.abs(dL_linear).max())
        np.testing.assert_allclose(dL, dL_linear, atol=1e-12 * size)
        np.testing.assert_allclose(dmu, dmu_linear, atol=1e-12 * size)


def at_time(linear, start, t):
    """The Gaussian at t, by the closed form of the geodesic or by exponentials of the pieces before t."""
    if not isinstance(linear, Piecewise):
        return linear.gaussian_at(t)
    mean, L, d = np.asarray(start.mean), np.asarray(start.factor), start.dim
    for A, b, begin, end in zip(linear.layers.A, linear.layers.b, linear.edges, linear.edges[1:]):
        M = np.zeros((d + 1, d + 1))
        M[:d, :d], M[:d, d] = A, b
        E = expm(min(max(t - begin, 0.0), end - begin) * M)
        mean, L = E[:d, :d] @ mean + E[:d, d], E[:d, :d] @ L
    return Gaussian(jnp.asarray(mean), jnp.asarray(L))


def test_c3_agrees_with_scipy():
    start, target = pair(3, 2)
    weights = control.attention_only(control.geodesic(start, target), start)
    mean, covariance = end_by_dop853(weights, start)
    np.testing.assert_allclose(mean, target.mean, atol=1e-10)
    np.testing.assert_allclose(covariance, target.covariance, atol=1e-10)


def test_c3_refuses_layers_that_attend_already():
    start, _ = pair(2, 2)
    attending = Piecewise(A=jnp.zeros((1, 2, 2)), B=jnp.zeros((1, 2, 2)), V=jnp.zeros((1, 2, 2)), t1=1.0)
    with pytest.raises(InputError, match="must be linear"):
        control.attention_only(attending, start)


@pytest.mark.parametrize(("d", "r"), PAIRS)
def test_the_geodesic_obeys_the_moment_equations_arrives_and_costs_w2_squared(d, r):
    start, target = pair(d, r)
    weights = control.geodesic(start, target, t1=0.8)
    end, size = weights.gaussian_at(0.8), float(jnp.abs(target.covariance).max())
    np.testing.assert_allclose(end.covariance, target.covariance, atol=1e-12 * size)
    np.testing.assert_allclose(end.mean, target.mean, atol=1e-12)
    for t in (0.0, 0.5, 0.8):
        now, rate = jax.jvp(weights.gaussian_at, (jnp.asarray(t),), (jnp.asarray(1.0),))
        (dmu, dL), _ = MomentFlow(weights).field(t, now, weights.at(t))
        np.testing.assert_allclose(dL, rate.factor, atol=1e-12 * size)
        np.testing.assert_allclose(dmu, rate.mean, atol=1e-12)
        power = jnp.sum(dL**2) + jnp.sum(dmu**2)
        np.testing.assert_allclose(power, wasserstein_squared(start, target) / 0.8**2, rtol=1e-12)


def test_the_geodesic_has_the_generator_of_the_optimal_map():
    start, target = pair(4, 4)
    S0, S1 = np.asarray(start.covariance), np.asarray(target.covariance)
    root = np.linalg.cholesky(S0)
    s, U = np.linalg.eigh(root.T @ S1 @ root)
    # T = L₀^{-ᵀ}(L₀ᵀΣ₁L₀)^½L₀^{-1} is symmetric with TΣ₀T = Σ₁.
    T = np.linalg.solve(root.T, (U * np.sqrt(s)) @ U.T) @ np.linalg.inv(root)
    np.testing.assert_allclose(T @ S0 @ T, S1, atol=1e-12)
    weights, eye = control.geodesic(start, target, t1=2.0), np.eye(4)
    for t in (0.0, 0.6, 2.0):
        expected = (T - eye) @ np.linalg.inv((1 - t / 2) * eye + t / 2 * T) / 2
        np.testing.assert_allclose(weights.at(t).A, expected, atol=1e-11)


def test_kinetic_energy_of_a_turning_ellipse_by_hand():
    # A = ω[[0, −1], [1, 0]], Σ = I: |ẋ|² = ω²|x|², mean 2ω²; the mean e₁ + bt adds |A e^{At}μ|² = ω².
    w = 1.5
    weights = Piecewise(A=w * jnp.array([[[0.0, -1.0], [1.0, 0.0]]]), t1=2.0)
    start = Gaussian(jnp.array([1.0, 0.0]), jnp.eye(2))
    np.testing.assert_allclose(
        control.kinetic_energy(weights, start, t1=2.0, method=Tsit5(), rtol=1e-10, atol=1e-10), 6 * w**2, rtol=1e-9
    )


@pytest.mark.slow
def test_no_layers_move_a_gaussian_for_less_than_w2_squared():
    rng = np.random.default_rng(3)
    d, k, n = 3, 3, 40
    start, _ = pair(d, 2)

    @jax.jit
    @jax.vmap
    def spent(A, B, V, b):
        weights = Piecewise(A=A, B=B, V=V, b=b, t1=1.5)
        sol = solve(MomentFlow(weights), start, t1=1.5, method=Tsit5(), rtol=1e-10, atol=1e-10, observe=control.kinetic)
        return sol.observables[-1] * sol.t_end, wasserstein_squared(start, sol.final)

    scale = np.geomspace(1e-3, 1.5, n)[:, None, None, None]
    A, B, V = (jnp.asarray(scale * rng.normal(size=(n, k, d, d))) for _ in range(3))
    energy, least = spent(A, B, V, jnp.asarray(scale[:, 0] * rng.normal(size=(n, k, d))))
    assert (energy >= least * (1 - 1e-7)).all()
    assert (energy > 1.2 * least).any()


def test_constructions_refuse_what_they_cannot_do():
    start, target = pair(3, 2)
    with pytest.raises(InputError, match="at least 2"):
        control.two_piece_linear(start, target, t1=1.0, segments=1)
    with pytest.raises(InputError, match="t1"):
        control.geodesic(start, target, t1=0.0)
    with pytest.raises(UnreachableError, match="rank"):
        control.geodesic(start, pair(3, 3)[1])
