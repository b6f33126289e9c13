"""The energy balance of densities, the floor of infinitely many heads, and what an energy is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from compiled import run

from jaxflow.errors import InputError
from jaxflow.meanfield import Density, DensityFlow, InfiniteDensityFlow, balance, energy
from jaxflow.meanfield.waves import waves
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, OrnsteinUhlenbeckLimit, uniform_energy
from jaxflow.particles import balance as of_tokens
from jaxflow.solve import Dopri8
from jaxflow.weights import Constant, Function, OrnsteinUhlenbeck, Piecewise, make_layer

TIGHT = {"method": Dopri8(), "rtol": 1e-11, "atol": 1e-11}
T1 = 0.5


def density(dim, degree):
    a = oracles.general(2, dim, seed=dim)
    return Density.from_function(
        lambda x: jnp.exp(x @ a[0]) + 0.5 * jnp.exp(0.7 * (x @ a[1])), dim=dim, degree=degree, normalize=True
    )


def nodes(density, degree):
    W = waves(density.dim, 1, degree)
    x = jnp.asarray(W.points)
    return Cloud.from_weights(x, jnp.asarray(W.weights) * density(x))


def schedules(dim):
    D = oracles.symmetric(2, dim, scale=0.8, seed=3)
    rate = jnp.asarray(oracles.symmetric(2, dim, seed=4))
    return {
        "constant": Constant(D=D, mass=np.array([0.3, 1.1])),
        "moving": Function(lambda t: make_layer(D=jnp.asarray(D) + t * rate)),
        "layers": Piecewise(D=np.stack([D, 0.5 * D[::-1]]), t1=T1),
    }


@pytest.mark.parametrize(
    ("dim", "weights", "law", "direction"),
    [
        (2, "constant", "softmax", "descend"),
        (2, "moving", "steepest", "descend"),
        (2, "layers", "unnormalized", "ascend"),
        (3, "moving", "softmax", "descend"),
    ],
)
def test_the_balance_closes_with_the_true_rate(dim, weights, law, direction):
    start, degree = density(dim, 24), 24
    flow = DensityFlow(schedules(dim)[weights], law=law, direction=direction)
    dt = 0.0125 if dim == 2 else 0.02
    report = run(flow.settle(start, 0.0, T1), start, t1=T1, observe=balance, dt=dt).observables
    change = abs(float(report.rate_integral[-1])) + abs(float(report.dt_energy_integral[-1]))
    assert change > 1e-3
    assert abs(float(report.residual[-1])) < 1e-7 * change
    np.testing.assert_allclose(
        report.gap, report.rate + (1 if direction == "ascend" else -1) * report.slope, rtol=1e-12
    )
    if law == "steepest":
        np.testing.assert_allclose(report.slope_residual[-1], 0, atol=1e-7 * change)
        np.testing.assert_allclose(report.deficit[-1], 0, atol=1e-7 * change)
    elif law == "softmax":
        assert abs(float(report.slope_residual[-1])) > 1e-3 * change
    np.testing.assert_allclose(report.mean_norm[0], np.linalg.norm(start.mean), rtol=1e-13)
    assert degree == start.degree


@pytest.mark.parametrize("dim", [2, 3])
def test_every_term_is_that_of_a_cloud_of_its_values(dim):
    start = density(dim, 12)
    weights = schedules(dim)["constant"]
    flow = DensityFlow(weights, direction="descend").settle(start, 0.0, T1)
    cloud, tokens = nodes(start, 14 if dim == 3 else 40), AttentionFlow(weights, direction="descend")
    ours = eqx.filter_jit(balance.measure)(flow, 0.0, start, weights, None)
    theirs = eqx.filter_jit(of_tokens.measure)(tokens, 0.0, cloud, weights, None)
    for x, y in zip(ours, theirs):
        np.testing.assert_allclose(x, y, rtol=1e-8)
    np.testing.assert_allclose(energy(flow, start, weights.at(0.0)), ours[0], rtol=1e-13)
    if dim == 2:
        parts = list(zip((0.3, 1.1), np.asarray(weights.layer.B)))
        E = oracles.energy(np.asarray(cloud.points), np.asarray(cloud.weights), parts)
        np.testing.assert_allclose(ours[0], E, rtol=1e-10)


def test_noise_of_the_weights_is_accounted_for():
    """Along one path of the heads the integrals are those of weighted tokens, Itô term and martingale included."""
    weights = OrnsteinUhlenbeck(initial=oracles.symmetric(2, 2, scale=0.5, seed=8), mean=np.eye(2))
    start, knobs = density(2, 24), {"t1": 0.1, "dt": 0.005, "key": jax.random.key(2)}
    flow = DensityFlow(weights, direction="descend").settle(start, 0.0, 0.1)
    ours = run(flow, start, observe=balance, **knobs).observables
    theirs = run(AttentionFlow(weights, direction="descend"), nodes(start, 40), observe=of_tokens, **knobs).observables
    for name in ("energy", "rate_integral", "dt_energy_integral", "martingale"):
        np.testing.assert_allclose(getattr(ours, name)[-1], getattr(theirs, name)[-1], rtol=2e-3)
    assert abs(float(ours.martingale[-1])) > 1e-3


# --- infinitely many heads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 3])
def test_infinitely_many_heads_descend_to_the_floor(dim):
    """On S² ¼∫₋₁¹ exp(s + (1+s²)/4) ds = 0.8309227507871672, to 1e-8. Waves of degree l fade at the rate
    l(l+d−2)κ_l, which falls faster than any power of l, and so does what they add to the energy."""
    kernel = OrnsteinUhlenbeckLimit(noise_var=2.0, stationary=True)
    a = oracles.general(dim, scale=0.5, seed=dim)
    start = Density.from_function(lambda x: jnp.exp(x @ a), dim=dim, degree=12, normalize=True)
    flow = InfiniteDensityFlow(kernel, dim=dim, direction="descend")
    sol = run(flow, start, t1=60.0, dt=0.1, save_every=100, observe=balance)
    E = np.asarray(sol.observables.energy)
    np.testing.assert_allclose(E[-1], uniform_energy(kernel, dim=dim, t=0.0), rtol=1e-8)
    if dim == 3:
        assert abs(E[-1] - 0.8309227507871672) < 1e-8
    assert np.all(np.diff(E) < 1e-12)
    np.testing.assert_allclose(sol.observables.residual[-1], 0, atol=3e-6)
    np.testing.assert_allclose(sol.final.power[1:4], 0, atol=1e-12)


def test_moving_limits_do_work_and_ascending_raises_the_energy():
    flow = InfiniteDensityFlow(OrnsteinUhlenbeckLimit(noise_var=1.0), dim=2, direction="ascend")
    report = run(flow, density(2, 24), t1=0.3, observe=balance, **TIGHT).observables
    assert abs(float(report.residual[-1])) < 1e-9
    assert float(report.rate[0]) < 0
    np.testing.assert_allclose(report.slope, -report.rate, rtol=1e-12)
    np.testing.assert_allclose(report.slope_residual, report.residual, atol=1e-14)
    assert abs(float(report.dt_energy_integral[-1])) > 0.1


@pytest.mark.parametrize(
    ("flow", "words"),
    [
        (AttentionFlow(Constant(D=np.eye(2)), direction="descend"), "particles.balance for clouds"),
        (DensityFlow(Constant(D=np.eye(2)), direction="descend", kappa=2.0), "noise on tokens"),
        (DensityFlow(Constant(B=oracles.general(2, 2), V=np.eye(2))), "symmetric B"),
        (DensityFlow(Constant(A=np.eye(2))), "needs heads"),
        (InfiniteDensityFlow(OrnsteinUhlenbeckLimit(), dim=2, direction="descend", kappa=1.0), "noise adds terms"),
    ],
)
def test_flows_without_an_energy_are_refused(flow, words):
    with pytest.raises(InputError, match=words):
        balance.prepare(flow, None)
