"""Linear growth about the uniform density: closed form, derivative of the equation, densities and tokens in motion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import run
from scipy.special import gamma, iv

from jaxflow.errors import InputError
from jaxflow.meanfield import Density, DensityFlow, InfiniteDensityFlow, coefficients, fastest_mode, growth_rates
from jaxflow.meanfield.waves import degrees, size, waves
from jaxflow.measures import Cloud
from jaxflow.particles import AttentionFlow, OrnsteinUhlenbeckLimit
from jaxflow.weights import Constant, make_layer

MIXED = {"D": np.stack([1.5 * np.eye(3), -2 * np.eye(3)]), "mass": np.array([0.3, 0.9])}


def test_one_head_grows_by_bessel_functions():
    """l(l+d−2)a_l/β, divided by a_0 for softmax; for β = 4 on S¹ 2.439866, 6.422189, 7.508871: three clusters."""
    found = growth_rates(make_layer(B=4 * np.eye(2), V=np.eye(2)), degree=6, law="unnormalized")
    np.testing.assert_allclose(found[1:4], [2.439866, 6.422189, 7.508871], atol=5e-7)
    assert fastest_mode(found) == 3
    for d in (2, 3, 5):
        l = np.arange(7)
        for beta in (4.0, -1.5):
            a = gamma(d / 2) * (2 / abs(beta)) ** (d / 2 - 1) * iv(l + d / 2 - 1, abs(beta)) * np.sign(beta) ** l
            layer = make_layer(B=beta * np.eye(d), V=np.eye(d))
            np.testing.assert_allclose(
                growth_rates(layer, degree=6, law="unnormalized"), l * (l + d - 2) * a / beta, rtol=1e-12
            )
            np.testing.assert_allclose(growth_rates(layer, degree=6), l * (l + d - 2) * a / beta / a[0], rtol=1e-12)
            tied = growth_rates(make_layer(D=beta * np.eye(d)), degree=6, law="unnormalized", direction="descend")
            np.testing.assert_allclose(tied, -l * (l + d - 2) * a, rtol=1e-12)
    # Without temperature only the mean grows: (d − 1)/d.
    zero = growth_rates(make_layer(B=np.zeros((3, 3)), V=np.eye(3)), degree=4)
    np.testing.assert_allclose(zero, [0, 2 / 3, 0, 0, 0], atol=1e-15)
    assert fastest_mode(growth_rates(make_layer(D=np.eye(3)), degree=4, direction="descend")) is None


@pytest.mark.parametrize(("dim", "law"), [(2, "softmax"), (3, "softmax"), (3, "unnormalized"), (2, "steepest")])
def test_they_are_the_spectrum_of_the_derivative_and_the_uniform_density_rests(dim, law):
    parts = {"D": MIXED["D"][:, :dim, :dim], "mass": MIXED["mass"]}
    weights, N, kappa = Constant(**parts), 4, 3.0
    u = Density.uniform(dim=dim, degree=N)
    flow = DensityFlow(weights, law=law, direction="ascend", kappa=kappa).settle(u, 0.0, 1.0)

    def velocity(c):
        return flow.field(0.0, Density(c, dim), weights.layer)[0]

    np.testing.assert_allclose(velocity(u.coefficients), 0, atol=1e-14)
    J = jax.jit(jax.jacfwd(velocity))(u.coefficients)
    rates = growth_rates(weights.layer, degree=N, law=law, direction="ascend", kappa=kappa)
    # Mass has no derivative: only the others count.
    np.testing.assert_allclose(J[1:, 1:], np.diag(rates[degrees(dim, N)])[1:, 1:], atol=1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_infinitely_many_heads_have_rates_too(dim):
    kernel, N, t = OrnsteinUhlenbeckLimit(noise_var=2.0), 6, 0.3
    flow = InfiniteDensityFlow(kernel, dim=dim, direction="descend")
    u = Density.uniform(dim=dim, degree=N)
    J = jax.jacfwd(lambda c: flow.field(t, Density(c, dim))[0])(u.coefficients)
    rates = growth_rates(kernel, dim=dim, degree=N, law="unnormalized", direction="descend", t=t)
    assert (rates[1:] < 0).all()
    np.testing.assert_allclose(J, np.diag(rates[degrees(dim, N)]), atol=1e-13)


WAVE = {2: (3, 5), 3: (2, 6)}
"""By dimension: a degree, and a coefficient of it."""
SIZE, T1 = 1e-8, 0.2


def wave(dim, size=SIZE):
    l, k = WAVE[dim]
    u = Density.uniform(dim=dim, degree=8)
    return Density(u.coefficients.at[k].add(size), dim), l, k


def weights_of(dim):
    return Constant(B=4 * np.eye(dim), V=np.eye(dim))


@pytest.mark.parametrize(("dim", "law"), [(2, "unnormalized"), (3, "softmax")])
def test_waves_on_a_density_grow_at_these_rates_to_a_millionth(dim, law):
    start, l, k = wave(dim)
    flow = DensityFlow(weights_of(dim), law=law).settle(start, 0.0, T1)
    sol = run(flow, start, t1=T1, dt=0.01)
    measured = np.log(sol.final.coefficients[k] / SIZE) / T1
    rate = growth_rates(flow.weights.at(0.0), degree=8, law=law)[l]
    assert abs(measured / rate - 1) < 1e-6, (measured, rate)


@pytest.mark.parametrize("dim", [2, 3])
def test_waves_on_tokens_grow_at_these_rates_to_a_thousandth(dim):
    """Weighted tokens on a grid that integrates exactly, moved apart by −s∇Y_k: a wave of size s l(l+d−2)."""
    _, l, k = wave(dim)
    W = waves(dim, 8, 14 if dim == 2 else 12)
    unit = jnp.zeros(size(dim, 8)).at[k].set(1.0)
    shift = jnp.einsum("eg,egd->gd", W.gradient(unit), jnp.asarray(W.frame))
    x = jnp.asarray(W.points) + 1e-4 * shift
    cloud = Cloud.from_weights(x / jnp.linalg.norm(x, axis=1, keepdims=True), jnp.asarray(W.weights))
    flow = AttentionFlow(weights_of(dim))
    sol = run(flow, cloud, t1=T1, dt=0.01)
    measured = np.log(coefficients(sol.final, 8)[k] / coefficients(cloud, 8)[k]) / T1
    rate = growth_rates(flow.weights.at(0.0), degree=8)[l]
    assert abs(measured / rate - 1) < 1e-3, (measured, rate)
    assert abs(measured / rate - 1) < 1e-4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: growth_rates(make_layer(B=np.diag([1.0, 2.0]), V=np.eye(2)), degree=3), "heads.B"),
        (lambda: growth_rates(make_layer(B=np.eye(2), V=np.eye(2), A=np.ones((2, 2))), degree=3), "heads.A"),
        (lambda: growth_rates(make_layer(B=np.eye(2), V=np.eye(2), b=np.ones(2)), degree=3), "moves the uniform"),
        (lambda: growth_rates(make_layer(A=np.eye(2)), degree=3), "needs heads"),
        (lambda: growth_rates(make_layer(D=np.eye(2)), degree=3), "direction"),
        (lambda: growth_rates(make_layer(B=np.eye(2), V=np.eye(2)), degree=3, law="steepest"), "no growth rates"),
        (lambda: growth_rates(make_layer(B=np.eye(2), V=np.eye(2)), dim=3, degree=3), "not that of the layer"),
        (lambda: growth_rates(OrnsteinUhlenbeckLimit(), degree=3, law="unnormalized", direction="ascend"), "dim"),
        (lambda: growth_rates(OrnsteinUhlenbeckLimit(), dim=2, degree=3, direction="ascend"), "do not fit a kernel"),
    ],
)
def test_layers_that_move_the_uniform_density_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
