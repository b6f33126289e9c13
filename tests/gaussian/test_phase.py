"""Where does a Gaussian blow up, settle or decay under V = vI, B = bI? Against SciPy, and runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from jaxflow.gaussian import (
    PHASES,
    Gaussian,
    blowup_threshold,
    is_hurwitz,
    mean_converges,
    phase_of,
    scalar_blowup_time,
)

SKEW = np.array([[0.0, 0.4], [-0.4, 0.0]])
GENERAL = np.array([[-0.5, 1.3], [-0.2, -0.7]])
COVARIANCE = np.array([[1.0, 0.3], [0.3, 0.5]])
START = Gaussian.from_covariance(jnp.array([1.0, -0.5]), jnp.asarray(COVARIANCE))
LARGEST = np.linalg.eigvalsh(COVARIANCE)[-1]

threshold, hurwitz, phase = (eqx.filter_jit(f) for f in (blowup_threshold, is_hurwitz, phase_of))


def test_the_threshold_of_damped_rotations():
    A = -0.3 * np.eye(2) + SKEW
    assert float(threshold(jnp.asarray(A), START)) == pytest.approx(0.3 / LARGEST, rel=1e-12)


@pytest.mark.parametrize("a", [-0.3, 0.0, 0.3])
def test_the_threshold_at_a_horizon_inverts_the_blow_up_time(a):
    c = threshold(jnp.asarray(a * np.eye(2) + SKEW), START, 2.0)
    assert float(scalar_blowup_time(a, c, LARGEST)) == pytest.approx(2.0, rel=1e-11)


def test_the_threshold_of_general_layers():
    W = scipy.linalg.solve_continuous_lyapunov(GENERAL.T, -np.eye(2))
    expected = 1 / (2 * np.linalg.eigvals(W @ COVARIANCE).real.max())
    assert float(threshold(jnp.asarray(GENERAL), START)) == pytest.approx(expected, rel=1e-12)
    # Not the commuting formula: the two are told apart.
    assert abs(expected / (0.6 / LARGEST) - 1) > 0.05
    integral, _ = scipy.integrate.quad_vec(
        lambda s: scipy.linalg.expm(GENERAL.T * s) @ scipy.linalg.expm(GENERAL * s), 0, 1.7, epsabs=1e-13
    )
    finite = 1 / (2 * np.linalg.eigvals(integral @ COVARIANCE).real.max())
    assert float(threshold(jnp.asarray(GENERAL), START, 1.7)) == pytest.approx(finite, rel=1e-11)


@pytest.mark.parametrize(("factor", "end"), [(0.98, "decays"), (1.02, "blows_up")])
def test_either_side_of_the_threshold(factor, end):
    c = factor * float(threshold(jnp.asarray(GENERAL), START))

    def rate(t, s):
        S = s.reshape(2, 2)
        K = GENERAL + c * S
        return (K @ S + S @ K.T).reshape(-1)

    def huge(t, s):
        return np.abs(s).max() - 1e6

    huge.terminal = True
    sol = scipy.integrate.solve_ivp(rate, (0, 60), COVARIANCE.reshape(-1), method="DOP853", rtol=1e-10, events=huge)
    assert PHASES[int(phase(jnp.asarray(GENERAL), START, jnp.asarray(c)))] == end
    assert (sol.status == 1) == (end == "blows_up")
    if end == "decays":
        assert np.abs(sol.y[:, -1]).max() < 1e-6


def test_layers_that_do_not_damp_have_no_threshold():
    for A in (0.3 * np.eye(2), SKEW, np.zeros((2, 2)), np.diag([0.5, -0.5]), np.diag([0.2, -1.0])):
        assert float(threshold(jnp.asarray(A), START)) == 0


def test_hurwitz_is_about_eigenvalues():
    matrices = np.random.default_rng(0).standard_normal((60, 3, 3)) - 0.8 * np.eye(3)
    expected = np.linalg.eigvals(matrices).real.max(1) < 0
    assert 15 < expected.sum() < 45
    np.testing.assert_array_equal(jax.vmap(hurwitz)(jnp.asarray(matrices)), expected)


@pytest.mark.parametrize(
    ("A", "names"),
    [
        (-0.3 * np.eye(2) + SKEW, ["decays", "decays", "decays", "blows_up"]),
        (0.3 * np.eye(2) + SKEW, ["settles", "grows", "blows_up", "blows_up"]),
        (np.diag([0.3, -0.4]), ["settles", "grows", "blows_up", "blows_up"]),
        (SKEW, ["decays", "settles", "blows_up", "blows_up"]),
    ],
)
def test_phases_from_the_spectrum(A, names):
    found = phase(jnp.asarray(A), START, jnp.array([-1.0, 0.0, 0.1, 0.5]))
    assert [PHASES[i] for i in np.asarray(found)] == names


@pytest.mark.parametrize("v", [-0.7, 0.7])
def test_the_settled_mean_moves_at_the_rate_v(v):
    A, b = 0.3 * np.eye(2) + SKEW, -1.0 * np.sign(v)
    P = scipy.linalg.solve_continuous_lyapunov(A.T, -2 * v * b * np.eye(2))
    K = A + v * b * np.linalg.inv(P)
    rates = np.linalg.eigvals(K + v * np.eye(2)).real
    np.testing.assert_allclose(rates, v, atol=1e-12)
    found = mean_converges(jnp.asarray(A), jnp.asarray(v), jnp.asarray(PHASES.index("settles")))
    assert bool(found) == bool(rates.max() < 0)


def test_the_mean_of_a_vanishing_covariance_moves_by_a_and_v():
    A = jnp.asarray(-0.3 * np.eye(2) + SKEW)
    found = [bool(mean_converges(A, jnp.asarray(v), jnp.asarray(0))) for v in (-1.0, 0.29, 0.31)]
    assert found == [True, True, False]
    assert not bool(mean_converges(A, jnp.asarray(-1.0), jnp.asarray(PHASES.index("blows_up"))))
