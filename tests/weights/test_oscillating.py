"""Periodic weights: the published forcing, and the closed form against the ODE it solves."""

import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.integrate import solve_ivp

from jaxflow.errors import InputError
from jaxflow.weights import Oscillating


def forcing(d, tau):
    """F(τ) as SCIENCE writes it, entry by entry."""
    c, s = np.cos(tau), np.sin(tau)
    s2, c2 = np.sin(2 * tau), np.cos(2 * tau)
    if d == 2:
        return np.array([[2 + 1.5 * c, s2], [s2, 2 - 1.5 * c]])
    if d == 3:
        return np.array([[2 + 1.5 * c, s2, s], [s2, 2 + 1.5 * s, c2], [s, c2, 2 + 1.5 * np.cos(tau + np.pi / 4)]])
    F = np.diag([2 + 1.5 * np.cos(tau + 2 * np.pi * i / d) for i in range(d)])
    pairs = [(i, j) for i in range(d) for j in range(i + 1, d)]
    for p, (i, j) in enumerate(pairs):
        F[i, j] = F[j, i] = np.sin(2 * tau + 2 * np.pi * p / (d * (d - 1) / 2))
    return F


@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize("phase", ["locked", "spread"])
def test_closed_form_of_the_oscillating_weights_against_the_ode(d, phase):
    h, D0 = 3, oracles.symmetric(3, d, seed=d)
    w = Oscillating(initial=D0, phase=phase)
    shift = [2 * np.pi * i / h if phase == "spread" else 0.0 for i in range(h)]

    def F(t):
        return np.stack([forcing(d, t + p) for p in shift])

    for t in (0.0, 0.7, 5.1):
        np.testing.assert_allclose(w.forcing(t), F(t), atol=1e-14)
        np.testing.assert_allclose(w.drift(t), F(t) - np.asarray(w.at(t).B), atol=1e-13)
    end = solve_ivp(
        lambda t, y: (F(t) - y.reshape(h, d, d)).ravel(),
        (0, 4.3),
        D0.ravel(),
        method="DOP853",
        rtol=1e-12,
        atol=1e-12,
    ).y[:, -1]
    np.testing.assert_allclose(w.at(4.3).B.ravel(), end, atol=1e-10)
    np.testing.assert_array_equal(w.at(4.3).B, w.at(4.3).V)


def test_locked_heads_forget_their_start_and_agree():
    D = Oscillating(initial=oracles.symmetric(2, 3)).at(40.0).B
    np.testing.assert_allclose(D[0], D[1], atol=1e-14)


def test_oscillating_refuses():
    with pytest.raises(InputError, match=r"initial: is too small"):
        Oscillating(initial=jnp.eye(1))
