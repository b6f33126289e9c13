"""Noise on tokens: Brownian motion of the sphere, its stationary laws with drift, and Kuramoto's transition."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from scipy.optimize import brentq
from scipy.special import i0, i1

from jaxflow.errors import InputError
from jaxflow.geometry import Euclidean, Sphere
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, balance, uniform
from jaxflow.solve import RK4, Euler, Tsit5, solve
from jaxflow.weights import Constant, OrnsteinUhlenbeck

KEY = jax.random.key(7)


def drifting(b, kappa, geometry=Sphere()):  # noqa: B008
    return AttentionFlow(Constant(b=b), geometry=geometry, kappa=kappa)


@pytest.mark.parametrize("d", [2, 5])
def test_brownian_motion_forgets_where_it_began(d):
    """E⟨x_t, x_0⟩ = e^{−(d−1)t/κ}: x is an eigenfunction of the Laplacian of the sphere, of eigenvalue −(d−1)."""
    kappa, t, n = 3.0, 0.9, 20_000
    start = uniform(KEY, n=n, dim=d)
    sol = run(drifting(np.zeros(d), kappa), start, t1=t, dt=0.002, key=KEY, save_at=[t / 3, t])
    for s, x in zip((t / 3, t), sol.states.points):
        cosines = np.sum(np.asarray(x) * np.asarray(start.points), 1)
        error = cosines.std() / np.sqrt(n)
        assert abs(cosines.mean() - np.exp(-(d - 1) * s / kappa)) < 4 * error
        # Four standard errors would see the Itô drift missing.
        assert 1 - np.exp(-(d - 1) * s / kappa) > 20 * error
    assert float(Sphere().violation(sol.final.points).max()) < 1e-14


def test_one_step_is_right_in_the_mean_to_second_order():
    """Conditional on x, the mean of a step is ⟨x, x'⟩ = E(1 + (2h/κ)χ²_{d−1})^{−1/2} = e^{−(d−1)h/κ} + O(h²)."""
    d, kappa = 3, 2.0
    nodes, weights = np.polynomial.laguerre.laggauss(60)
    steps = np.array([0.02, 0.04, 0.08])
    # χ² with two degrees of freedom is exponential of mean 2.
    means = np.array([weights @ (1 + 2 * h / kappa * 2 * nodes) ** -0.5 for h in steps])
    assert abs(oracles.order(steps, np.abs(means - np.exp(-(d - 1) * steps / kappa))) - 2) < 0.3
    n, h = 200_000, 0.08
    x = jnp.broadcast_to(jnp.asarray([0.6, 0.0, 0.8]), (n, d))
    step = run(drifting(np.zeros(d), kappa), Cloud(x), t1=h, dt=h, key=KEY).final.points
    cosines = np.asarray(step @ x[0])
    assert abs(cosines.mean() - means[2]) < 4.5 * cosines.std() / np.sqrt(n)


def test_drift_and_noise_settle_in_the_density_of_von_mises_and_fisher():
    """ẋ = P_x b + noise has the stationary density ∝ e^{κ⟨b,x⟩}, whose mean on S² is coth κ − 1/κ."""
    kappa, n = 2.5, 20_000
    flow = drifting(np.eye(3)[0], kappa)
    x = run(flow, uniform(KEY, n=n, dim=3), t1=6.0, dt=0.01, key=KEY).final.points
    heights = np.asarray(x)[:, 0]
    expected = 1 / np.tanh(kappa) - 1 / kappa
    # The scheme is of weak order one: its bias at this step is of the order of the step.
    assert abs(heights.mean() - expected) < 4 * heights.std() / np.sqrt(n) + 0.002


@pytest.mark.slow
def test_the_transition_of_kuramoto_on_the_circle():
    """β = 0, V = I, d = 2: order sets in at κ = 2, and above it r = I₁(κr)/I₀(κr)."""

    @eqx.filter_jit
    def order(kappa, key):
        flow = AttentionFlow(Constant(B=np.zeros((2, 2)), V=np.eye(2)), kappa=kappa)
        start = uniform(jax.random.key(1), n=600, dim=2)
        sol = solve(flow, start, t1=40.0, dt=0.05, key=key, save_every=4)
        late = sol.states.points[sol.states.points.shape[0] // 2 :]
        return jnp.sqrt(jnp.mean(jnp.sum(jnp.mean(late, 1) ** 2, -1)))

    for kappa in (3.0, 5.0):
        expected = brentq(lambda r, k=kappa: r - i1(k * r) / i0(k * r), 0.1, 1)
        assert abs(float(order(jnp.asarray(kappa), KEY)) - expected) < 0.03
    # Below: only the fluctuation of 600 tokens, r² = 1/(n(1 − κ/2)).
    assert float(order(jnp.asarray(1.0), KEY)) < 2 * np.sqrt(2 / 600)


def test_tokens_in_the_plane_diffuse():
    """R^d: E|x_t − x_0|² = 2dt/κ, for each step exactly."""
    n, kappa, t = 20_000, 4.0, 0.5
    flow = drifting(np.zeros(2), kappa, Euclidean())
    x = np.asarray(run(flow, Cloud(jnp.zeros((n, 2))), t1=t, dt=0.1, key=KEY).final.points)
    square = np.sum(x * x, 1)
    assert abs(square.mean() - 4 * t / kappa) < 4 * square.std() / np.sqrt(n)


def test_noise_on_tokens_leaves_the_noise_of_the_weights_alone():
    """Streams are apart: the recorded path of the heads with the same noise on the tokens is the same run."""
    heads = OrnsteinUhlenbeck(initial=oracles.symmetric(2, 3), mean=np.eye(3), noise_var=1.3)
    cloud = Cloud(jnp.asarray(oracles.unit_rows(4, 3)))
    options = {"t1": 0.5, "dt": 0.1, "method": Euler(), "key": KEY}
    both = AttentionFlow(heads, direction="descend", kappa=5.0)
    path = heads.sample(KEY, jnp.linspace(0.0, 0.5, 6))
    frozen = run(dataclasses.replace(both, weights=path), cloud, **options).final.points
    moved = run(both, cloud, **options).final.points
    np.testing.assert_allclose(moved, frozen, atol=1e-13)
    quiet = run(dataclasses.replace(both, kappa=None), cloud, **options).final.points
    assert float(jnp.abs(moved - quiet).max()) > 0.05


def test_derivatives_in_the_strength_of_noise():
    cloud = Cloud(jnp.asarray(oracles.unit_rows(4, 3)))

    @eqx.filter_jit
    def height(kappa):
        flow = AttentionFlow(Constant(D=np.eye(3)), direction="ascend", kappa=kappa)
        return run(flow, cloud, t1=0.5, dt=0.1, key=KEY).final.points[0, 0]

    slope = eqx.filter_jit(jax.grad(height))(jnp.asarray(2.0))
    np.testing.assert_allclose(slope, oracles.derivative(lambda k: float(height(jnp.asarray(k))), 2.0), rtol=1e-7)


def test_what_noise_does_not_allow_is_refused():
    flow, cloud = drifting(np.zeros(2), 2.0), uniform(KEY, n=3, dim=2)
    for method, options in ((RK4(), {"dt": 0.1}), (Tsit5(), {})):
        with pytest.raises(InputError, match=r"method: does not apply to noisy tokens(.|\n)*Euler\(\) with dt"):
            solve(flow, cloud, t1=1.0, method=method, key=KEY, **options)
    with pytest.raises(InputError, match="key: is needed: noise moves the tokens"):
        solve(flow, cloud, t1=1.0, dt=0.1)
    with pytest.raises(InputError, match="key: does not apply: nothing here is random"):
        solve(dataclasses.replace(flow, kappa=None), cloud, t1=1.0, dt=0.1, key=KEY)
    for bad in (0.0, -1.0):
        with pytest.raises(InputError, match="kappa: must be positive"):
            drifting(np.zeros(2), bad)
    tied = AttentionFlow(Constant(D=np.eye(2)), direction="descend", kappa=2.0)
    with pytest.raises(InputError, match="observe: does not apply: noise on tokens"):
        solve(tied, cloud, t1=1.0, dt=0.1, key=KEY, observe=balance)
