"""Infinitely many heads, integrated out: the energy's floor, the limit of sampled heads, and the balance."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run
from scipy.integrate import quad

from jaxflow.errors import InputError
from jaxflow.measures import Cloud
from jaxflow.particles import (
    AbstractLimit,
    AttentionFlow,
    InfiniteHeads,
    OrnsteinUhlenbeckLimit,
    balance,
    energy,
    limit_balance,
    uniform_energy,
)
from jaxflow.solve import solve
from jaxflow.weights import Constant, OrnsteinUhlenbeck, random_heads

N, T = 7, 0.9
X, W = oracles.unit_rows(N, 3), oracles.weights(N)
CLOUD = Cloud.from_weights(jnp.asarray(X), jnp.asarray(W))
LIMIT = OrnsteinUhlenbeckLimit(noise_var=1.3)
FLOW = InfiniteHeads(LIMIT, direction="descend")


class Exponential(AbstractLimit):
    """k = e^{βs}: all heads are βI."""

    beta: jax.Array

    def log_kernel(self, s, t):
        return self.beta * s


def kernel(s, t, noise_var):
    """E e^{⟨x,D_t y⟩} from the mean and the variance of the exponent."""
    tau = 4 * np.exp(-2 * t) + noise_var / 2 * (1 - np.exp(-2 * t))
    return np.exp((1 - np.exp(-t)) * s + tau * (1 + s * s) / 4)


def test_the_uniform_measure_has_the_energy_of_the_floor():
    """¼∫₋₁¹ exp(s + (1 + s²)/4) ds for σ² = 2: Gauss–Legendre nodes in height, equal angles around the axis."""
    z, w = np.polynomial.legendre.leggauss(16)
    angle = 2 * np.pi * np.arange(32) / 32
    r = np.sqrt(1 - z * z)[:, None]
    x = np.stack([r * np.cos(angle), r * np.sin(angle), np.broadcast_to(z[:, None], (16, 32))], -1).reshape(-1, 3)
    cloud = Cloud.from_weights(jnp.asarray(x), jnp.asarray(np.repeat(w, 32)))
    flow = InfiniteHeads(OrnsteinUhlenbeckLimit(stationary=True), direction="descend")
    np.testing.assert_allclose(flow.energy(0.0, cloud), 0.8309227507871672, rtol=1e-13)
    np.testing.assert_allclose(flow.energy(40.0, cloud), 0.8309227507871672, rtol=1e-13)
    late = InfiniteHeads(OrnsteinUhlenbeckLimit(), direction="descend")
    np.testing.assert_allclose(late.energy(40.0, cloud), 0.8309227507871672, rtol=1e-13)
    # Nothing moves, and any smaller cloud has more energy.
    np.testing.assert_allclose(flow.field(0.0, cloud)[0], 0, atol=1e-12)
    assert float(flow.energy(0.0, CLOUD)) > 0.8309227507871672


def mean_over_cosines(d, t):
    """∫ k(s, t) dν(s), ν the law of the cosine of two uniform points of S^{d−1}."""

    def density(s):
        return (1 - s * s) ** ((d - 3) / 2)

    return quad(lambda s: kernel(s, t, 1.3) * density(s), -1, 1)[0] / quad(density, -1, 1)[0]


def test_the_energy_of_the_uniform_measure_in_any_dimension_at_any_time():
    """On the circle by equally many angles, in d = 3, 5 by the density (1 − s²)^{(d−3)/2} of a cosine; on the circle
    no random cloud has less."""
    angle = 2 * np.pi * np.arange(60) / 60
    circle = Cloud(jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], 1)))
    for t in (0.0, 0.4):
        floor = uniform_energy(LIMIT, dim=2, t=t)
        np.testing.assert_allclose(floor, FLOW.energy(t, circle), rtol=1e-13)
        assert float(FLOW.energy(t, Cloud(jnp.asarray(oracles.unit_rows(9, 2))))) > float(floor)
        for d in (3, 5):
            np.testing.assert_allclose(uniform_energy(LIMIT, dim=d, t=t), mean_over_cosines(d, t) / 2, rtol=1e-13)
    with pytest.raises(InputError, match="at least two dimensions"):
        uniform_energy(LIMIT, dim=1, t=0.0)


def test_energy_and_velocity_against_the_double_loop():
    E, v, h = 0.0, np.zeros((N, 3)), 1e-5
    for i in range(N):
        for j in range(N):
            s = X[i] @ X[j]
            E += 0.5 * W[i] * W[j] * kernel(s, T, 1.3)
            v[i] -= W[j] * (kernel(s + h, T, 1.3) - kernel(s - h, T, 1.3)) / (2 * h) * (X[j] - s * X[i])
    np.testing.assert_allclose(FLOW.energy(T, CLOUD), E, rtol=1e-14)
    np.testing.assert_allclose(FLOW.field(T, CLOUD)[0], v, atol=1e-9)
    blocks = InfiniteHeads(LIMIT, direction="descend", block=3)
    np.testing.assert_allclose(blocks.field(T, CLOUD)[0], FLOW.field(T, CLOUD)[0], atol=1e-15)


def test_heads_that_are_all_alike_need_no_limit():
    flow = InfiniteHeads(Exponential(jnp.asarray(1.7)), direction="ascend")
    finite = AttentionFlow(Constant(D=1.7 * np.eye(3)), law="unnormalized", direction="ascend")
    layer = finite.weights.at(0.0)
    np.testing.assert_allclose(flow.field(0.0, CLOUD)[0], finite.field(0.0, CLOUD, layer)[0], atol=1e-14)
    np.testing.assert_allclose(flow.energy(0.0, CLOUD), energy(finite, CLOUD, layer), rtol=1e-14)


@pytest.mark.slow
def test_sampled_heads_approach_the_limit_like_the_inverse_root_of_their_number():
    """Root mean squares over 64 draws of H heads, each carried to t by the exact transition."""
    t, counts = 1.5, [16, 128, 1024]
    limit = InfiniteHeads(OrnsteinUhlenbeckLimit(), direction="descend")
    v, E = limit.field(t, CLOUD)[0], limit.energy(t, CLOUD)

    def misses(key, h):
        first, then = jax.random.split(key)
        heads = OrnsteinUhlenbeck(initial=random_heads(first, heads=h, dim=3), mean=np.eye(3))
        flow = AttentionFlow(heads, law="unnormalized", direction="descend")
        layer = heads.at(t, heads.advance(heads.begin(None), t, then))
        return flow.field(t, CLOUD, layer)[0] - v, energy(flow, CLOUD, layer) - E

    velocities, energies = [], []
    for h in counts:
        keys = jax.random.split(jax.random.key(h), 64)
        found = jax.jit(jax.vmap(lambda k, h=h: misses(k, h)))(keys)
        for miss, sizes in zip(found, (velocities, energies)):
            # Without bias: every mean over the draws is within 4.5 standard errors of zero.
            z = np.asarray(miss).reshape(64, -1)
            assert (np.abs(z.mean(0)) < 4.5 * z.std(0) / 8).all()
            sizes.append(np.sqrt(np.mean(np.sum(z**2, 1))))
    assert abs(oracles.order(counts, velocities) + 0.5) < 0.1
    assert abs(oracles.order(counts, energies) + 0.5) < 0.1
    assert energies[-1] < 0.03 * float(E)


def test_the_balance_closes():
    sol = run(FLOW, CLOUD, t1=2.0, rtol=1e-10, atol=1e-10, observe=limit_balance)
    r = sol.observables
    change = abs(float(r.energy[-1] - r.energy[0]))
    assert change > 0.05
    assert float(r.dt_energy_integral[-1]) < -0.05
    assert float(r.rate_integral[-1]) > 0.05
    assert abs(float(r.residual[-1])) < 1e-7 * change
    np.testing.assert_allclose(r.slope, r.rate, rtol=1e-12)
    fixed = run(FLOW, CLOUD, t1=2.0, dt=0.02)
    np.testing.assert_allclose(fixed.final.points, sol.final.points, atol=1e-6)


def test_ascending_tokens_go_the_other_way_and_raise_the_energy():
    flow = InfiniteHeads(LIMIT, direction="ascend")
    (up, _), (down, _) = flow.field(T, CLOUD), FLOW.field(T, CLOUD)
    np.testing.assert_array_equal(up, -down)
    steady = InfiniteHeads(OrnsteinUhlenbeckLimit(stationary=True), direction="ascend")
    r = run(steady, CLOUD, t1=1.0, dt=0.05, observe=limit_balance).observables
    np.testing.assert_allclose(r.slope, -r.rate, rtol=1e-12)
    assert float(r.energy[1] - r.energy[0]) > 0.05
    assert abs(float(r.residual[-1])) < 1e-6


def test_the_energy_of_heads_at_equilibrium_decreases():
    flow = InfiniteHeads(OrnsteinUhlenbeckLimit(stationary=True), direction="descend")
    sol = run(flow, CLOUD, t1=20.0, save_at=np.linspace(0, 20, 41).tolist(), observe=limit_balance)
    E = np.asarray(sol.observables.energy)
    assert (np.diff(E) < 1e-12).all()
    assert E[-1] > 0.8309227507871672
    assert E[0] - E[-1] > 0.02
    np.testing.assert_array_equal(sol.observables.dt_energy_integral, 0)


def test_the_velocity_is_the_gradient_of_the_energy():
    def E(x):
        x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
        return FLOW.energy(T, Cloud(x, CLOUD.log_weights))

    gradient = jax.grad(E)(CLOUD.points) / jnp.asarray(W)[:, None]
    np.testing.assert_allclose(FLOW.field(T, CLOUD)[0], -gradient, atol=1e-14)


def test_gradients_of_a_run_against_differences():
    away = jnp.asarray(oracles.general(N, 3, seed=3))

    @eqx.filter_jit
    def final(shift, noise_var):
        x = CLOUD.points + shift * away
        cloud = Cloud(x / jnp.linalg.norm(x, axis=1, keepdims=True), CLOUD.log_weights)
        flow = InfiniteHeads(OrnsteinUhlenbeckLimit(noise_var=noise_var), direction="descend")
        sol = run(flow, cloud, t1=1.0, dt=0.1)
        return flow.energy(1.0, sol.final)

    zero, one = jnp.asarray(0.0), jnp.asarray(1.3)
    in_shift, in_noise = eqx.filter_jit(jax.grad(final, argnums=(0, 1)))(zero, one)
    np.testing.assert_allclose(in_shift, oracles.derivative(lambda h: final(jnp.asarray(h), one), 0.0), rtol=1e-8)
    np.testing.assert_allclose(in_noise, oracles.derivative(lambda v: final(zero, jnp.asarray(v)), 1.3), rtol=1e-8)


def test_tokens_in_single_precision_stay_so():
    x = CLOUD.points.astype(jnp.float32)
    flow = InfiniteHeads(OrnsteinUhlenbeckLimit(noise_var=jnp.float32(1.3)), direction="descend")
    v = flow.field(T, Cloud(x))[0]
    assert v.dtype == jnp.float32
    np.testing.assert_allclose(v, FLOW.field(T, Cloud(CLOUD.points))[0], atol=1e-6)
    with pytest.raises(InputError, match="mixes precisions"):
        solve(FLOW, Cloud(x), t1=1.0, dt=0.1)


def test_what_has_no_closed_form_is_refused():
    for law in ("softmax", "steepest"):
        with pytest.raises(InputError, match=r"law: has no closed form(.|\n)*1/m_h"):
            InfiniteHeads(LIMIT, direction="descend", law=law)
    with pytest.raises(InputError, match="noise_var: must be positive"):
        OrnsteinUhlenbeckLimit(noise_var=0.0)
    with pytest.raises(InputError, match="block: must be at least 1"):
        InfiniteHeads(LIMIT, direction="descend", block=0)
    with pytest.raises(InputError, match="not on the sphere"):
        solve(FLOW, Cloud(2 * CLOUD.points), t1=1.0, dt=0.1)
    with pytest.raises(InputError, match=r"use jf\.particles\.limit_balance for InfiniteHeads"):
        solve(FLOW, CLOUD, t1=1.0, dt=0.1, observe=balance)
    flow = AttentionFlow(Constant(D=np.eye(3)), direction="descend")
    with pytest.raises(InputError, match=r"use jf\.particles\.balance"):
        solve(flow, CLOUD, t1=1.0, dt=0.1, observe=limit_balance)
