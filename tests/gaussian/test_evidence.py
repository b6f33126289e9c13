"""The numbers behind verdicts, each against an independent way to it: a verdict would often survive a wrong sign."""

import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.integrate
import scipy.linalg

from jaxflow.gaussian import Gaussian, bernoulli, classify, covariance_spectrum
from jaxflow.gaussian.blowup import lyapunov_rates
from jaxflow.gaussian.evidence import rescaled_spectrum, rescaled_velocity, tangent_spectrum
from jaxflow.gaussian.parts import host_parts, parts_of, reach
from jaxflow.gaussian.theorems import small_gain
from jaxflow.weights import make_layer

A = oracles.general(3, 3, scale=0.4, seed=1) - np.eye(3)
B, V = oracles.general(2, 3, 3, seed=2), oracles.general(2, 3, 3, seed=3)
LAYER = make_layer(A=A, B=B, V=V, mass=np.array([0.7, 1.3]))
L = oracles.general(3, 3, scale=0.7, seed=4)


def symmetric_directions(d):
    """A basis of the symmetric matrices, not orthonormal."""
    i, j = np.triu_indices(d)
    E = np.zeros((len(i), d, d))
    E[range(len(i)), i, j] = E[range(len(i)), j, i] = 1
    return E, (i, j)


def test_rescaled_linearisation_is_that_of_finite_differences():
    """On all symmetric matrices F has one eigenvalue more, along S: dF(S) = 2F(S) − 2gS. Trace zero leaves it out where
    F(S) is zero too; so compare the trace and determinant of the restriction itself."""
    parts = host_parts(LAYER)
    S = L @ L.T / np.trace(L @ L.T)
    E, (i, j) = symmetric_directions(3)
    # Directions of trace zero: E_k − tr(E_k) S for five of the six.
    T = np.stack([X - np.trace(X) * S for X in E])[:5]
    dF = np.stack([oracles.derivative(lambda s, X=X: rescaled_velocity(parts, S + s * X), 0.0) for X in T])
    basis = T[:, i, j].T
    J = np.linalg.lstsq(basis, dF[:, i, j].T, rcond=None)[0]
    found = rescaled_spectrum(parts, L)
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(np.linalg.eigvals(J)), atol=1e-8)


def test_rescaled_velocity_is_the_flow_of_the_shape():
    """S = Σ/tr Σ without A, in the time tr Σ dt: dS/dτ from dΣ/dt by the quotient rule."""
    parts = host_parts(LAYER)
    Sigma = L @ L.T
    Q = sum(c * V[h] @ Sigma @ B[h] for h, c in enumerate((0.7, 1.3)))
    dSigma, tr = Q @ Sigma + Sigma @ Q.T, np.trace(Sigma)
    expected = (dSigma / tr - Sigma * np.trace(dSigma) / tr**2) / tr
    np.testing.assert_allclose(rescaled_velocity(parts, Sigma / tr), expected, atol=1e-12)


def test_tangent_spectrum_at_full_rank_is_the_covariance_spectrum():
    found = tangent_spectrum(host_parts(LAYER), L)
    expected = covariance_spectrum(LAYER, jnp.asarray(L @ L.T))
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(expected), atol=1e-10)


def test_tangent_spectrum_at_rank_one_is_that_of_the_vector_field():
    """Σ = vvᵀ, v̇ = Kv, K(v) = A + Σ c V vvᵀ B: at a rest of Σ (Kv = 0) the rank-one directions see d(Kv)/dv."""
    v = np.array([0.6, -0.4, 0.5])
    parts = host_parts(LAYER)

    def field(v, A):
        return (A + sum(c * V[h] @ np.outer(v, v) @ B[h] for h, c in enumerate((0.7, 1.3)))) @ v

    resting = A - np.outer(field(v, A), v) / (v @ v)
    J = np.stack([oracles.derivative(lambda s, e=e: field(v + s * e, resting), 0.0) for e in np.eye(3)], 1)
    found = tangent_spectrum(parts._replace(A=resting), v[:, None])
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(np.linalg.eigvals(J)), atol=1e-8)


def test_small_gain_holds_as_an_inequality():
    """y = tr PΣ with P = ∫e^{Aᵀt}e^{At}dt: y' ≤ −tr Σ (1 − gain) on random Σ, and the gain from that P."""
    parts = host_parts(LAYER)
    ts, h = np.linspace(0, 60, 6001, retstep=True)
    step, half = scipy.linalg.expm(A * h), []
    E = np.eye(3)
    for _ in ts:
        half.append(E.T @ E)
        E = E @ step
    P = scipy.integrate.simpson(np.stack(half), x=ts, axis=0)
    for seed in range(20):
        M = oracles.general(3, 3, scale=0.05, seed=seed)
        Sigma = M @ M.T
        gain = 2 * np.linalg.norm(P, 2) * reach(parts) * np.trace(P @ Sigma) / np.linalg.eigvalsh(P)[0]
        found = small_gain(parts, Sigma)
        assert (found is not None) == (gain < 1)
        if found is not None:
            np.testing.assert_allclose(found.numbers["gain"], gain, rtol=1e-6)
        K = A + sum(c * V[k] @ Sigma @ B[k] for k, c in enumerate((0.7, 1.3)))
        assert 2 * np.trace(P @ K @ Sigma) <= -np.trace(Sigma) * (1 - gain) + 1e-12


@pytest.mark.parametrize(("sign", "which"), [(1.0, 0), (-1.0, -1)])
def test_kappa_of_the_bounds_is_the_extreme_rate(sign, which):
    """κ is the smallest (largest) of tr(|V|^{-1}AΣ)/tr(|V|^{-1}Σ) over Σ: a generalised eigenvalue. V = −|V| here."""
    M = oracles.general(3, 3, seed=7)
    W = M @ M.T / 3 + 0.3 * np.eye(3)
    layer = make_layer(A=A, B=-sign * W, V=-W)
    kappa, rate, y0, definite = lyapunov_rates(parts_of(layer), jnp.asarray(L @ L.T), sign=sign)
    inverse = np.linalg.inv(W)
    form = inverse @ A
    expected = scipy.linalg.eigh((form + form.T) / 2, inverse, eigvals_only=True)[which]
    assert bool(definite)
    np.testing.assert_allclose(kappa, expected, rtol=1e-10)
    np.testing.assert_allclose(rate, np.linalg.eigvalsh(W)[0] ** 3 / 3, rtol=1e-12)
    np.testing.assert_allclose(y0, np.trace(inverse @ L @ L.T), rtol=1e-12)


def test_number_behind_the_riccati_verdict():
    """λmax(L₀ᵀW∞L₀), W∞ = 2∫e^{Aᵀs}Ge^{As}ds, for V = vI and a Hurwitz, non-normal A."""
    G = 0.05 * (B[0] @ B[0].T)
    verdict = classify(make_layer(A=A, B=B[0] @ B[0].T, V=0.05 * np.eye(3)), Gaussian(jnp.zeros(3), jnp.asarray(L)))
    ts = np.linspace(0, 40, 4001)
    terms = [2 * scipy.linalg.expm(A.T * s) @ G @ scipy.linalg.expm(A * s) for s in ts]
    W = scipy.integrate.simpson(np.stack(terms), x=ts, axis=0)
    np.testing.assert_allclose(verdict.numbers["λmax(L₀ᵀW∞L₀)"], np.linalg.eigvalsh(L.T @ W @ L)[-1], rtol=1e-7)
    assert verdict.evidence == "theorem"


@pytest.mark.parametrize("shift", [1.5, 0.8])
def test_limit_behind_the_bernoulli_verdict(shift):
    """Where the verdict says the covariance settles, and where `bernoulli` puts it by the sign function: one matrix,
    for A with all and with some directions growing."""
    growing = oracles.general(3, 3, scale=0.8, seed=1) + (shift - 1) * np.eye(3)
    layer = make_layer(A=growing, B=B[0] @ B[0].T + 0.1 * np.eye(3), V=-0.7 * np.eye(3))
    verdict = classify(layer, Gaussian(jnp.zeros(3), jnp.asarray(L)))
    assert (verdict.regime, verdict.evidence) == ("settles", "theorem")
    np.testing.assert_allclose(verdict.limit, bernoulli(layer), atol=1e-10)
