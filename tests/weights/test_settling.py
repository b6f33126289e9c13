"""Heads that relax to a mean, and heads near others: closed forms, entry by entry."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.integrate import quad, solve_ivp

from jaxflow.errors import InputError
from jaxflow.particles import head_speed, limit_of
from jaxflow.weights import (
    Constant,
    Function,
    OrnsteinUhlenbeck,
    Oscillating,
    Perturbed,
    Piecewise,
    Relaxing,
    Sampled,
    largest_norm,
    make_layer,
)

D0, MEAN, S = (oracles.symmetric(2, 3, seed=seed) for seed in (1, 2, 3))
SETTLING = Relaxing(initial=D0, mean=MEAN)


def test_relaxing_heads_solve_their_equation_and_are_the_diffusion_without_noise():
    end = solve_ivp(lambda t, y: MEAN.ravel() - y, (0, 1.7), D0.ravel(), method="DOP853", rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(SETTLING.at(1.7).B.ravel(), end.y[:, -1], rtol=1e-11)
    np.testing.assert_array_equal(SETTLING.at(1.7).B, SETTLING.at(1.7).V)
    np.testing.assert_allclose(SETTLING.drift(0.6), MEAN - SETTLING.at(0.6).B, atol=1e-14)
    noisy = OrnsteinUhlenbeck(initial=D0, mean=MEAN, noise_var=1e-30)
    np.testing.assert_allclose(noisy.advance(jnp.asarray(D0), 1.7, jax.random.key(0)), SETTLING.at(1.7).B, atol=1e-14)


def test_the_speed_of_heads_that_relax_has_a_finite_integral_and_their_limit_is_the_mean():
    """max_h ‖Ḋ_h‖ = e^{−t} max_h ‖D₀ − D̄‖."""
    size = np.linalg.norm(D0 - MEAN, 2, axis=(1, 2)).max()
    speed = head_speed(SETTLING, jnp.linspace(0.0, 3.0, 4))
    np.testing.assert_allclose(speed, np.exp(-np.arange(4.0)) * size, rtol=1e-13)
    np.testing.assert_array_equal(limit_of(SETTLING).B, MEAN)
    np.testing.assert_allclose(SETTLING.at(50.0).B, limit_of(SETTLING).B, atol=1e-14)
    whole = quad(lambda t: float(head_speed(SETTLING, jnp.array([t]))[0]), 0, 40)[0]
    np.testing.assert_allclose(whole, size, rtol=1e-9)


def test_which_weights_have_a_limit():
    pieces = Piecewise(D=np.stack([D0, MEAN]), t1=1.0)
    np.testing.assert_array_equal(limit_of(pieces).B, MEAN)
    np.testing.assert_array_equal(limit_of(Constant(D=D0)).B, D0)
    ts = jnp.array([0.0, 1.0])
    for weights in (
        Oscillating(initial=D0),
        OrnsteinUhlenbeck(initial=D0, mean=MEAN),
        Function(lambda t: make_layer(D=t * D0)),
        Sampled(ts, make_layer(D=np.stack([D0, MEAN]), lead=1)),
    ):
        assert limit_of(weights) is None


def test_the_largest_norm_of_heads_that_relax_is_at_an_end_and_of_samples_at_a_sample():
    """Norms are convex along straight lines: e^{−t}D₀ + (1 − e^{−t})D̄ is one."""
    ends = max(np.linalg.norm(SETTLING.at(t).B, 2, axis=(1, 2)).max() for t in (0.0, 2.0))
    np.testing.assert_allclose(largest_norm(SETTLING, 0.0, 2.0), ends, rtol=1e-14)
    ts, spike = np.linspace(0.0, 1.0, 333), np.ones((333, 1, 1, 1)) * D0
    spike[100] *= 9
    path = Sampled(jnp.asarray(ts), make_layer(D=spike, lead=1))
    largest = np.linalg.norm(9 * D0, 2, axis=(1, 2)).max()
    np.testing.assert_allclose(largest_norm(path, 0.0, 1.0), largest, rtol=1e-14)
    # Between two samples the path is at most as large as its ends.
    assert largest_norm(path, 0.7, 0.9) < largest / 8


def test_perturbed_heads_are_shrunk_and_shifted():
    w = Perturbed(SETTLING, shift=S, decay=0.1)
    np.testing.assert_allclose(w.at(0.4).B, 0.9 * SETTLING.at(0.4).B + S, atol=1e-15)
    np.testing.assert_array_equal(w.at(0.4).B, w.at(0.4).V)
    np.testing.assert_allclose(w.drift(0.4), 0.9 * SETTLING.drift(0.4), atol=1e-14)
    np.testing.assert_array_equal(Perturbed(SETTLING).at(0.4).B, SETTLING.at(0.4).B)
    one = Perturbed(Constant(D=D0, mass=np.array([0.3, 0.7])), shift=S[0])
    np.testing.assert_allclose(one.at(0.0).B, D0 + S[0], atol=1e-15)
    np.testing.assert_array_equal(one.at(0.0).mass, [0.3, 0.7])
    # Pieces stay pieces.
    pieces = Perturbed(Piecewise(D=np.stack([D0, MEAN]), t1=1.0), shift=S)
    assert pieces.edges == (0.0, 0.5, 1.0)
    np.testing.assert_allclose(pieces.piece(1).at(0.0).B, MEAN + S, atol=1e-15)


def test_perturbations_of_one_family_share_a_program():
    found = jax.vmap(lambda e: Perturbed(SETTLING, shift=e * S, decay=e).at(0.4).B)(jnp.array([0.0, 0.2]))
    np.testing.assert_allclose(found[1], 0.8 * SETTLING.at(0.4).B + 0.2 * S, atol=1e-15)


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: Relaxing(initial=D0, mean=np.triu(MEAN[0])), "mean: is not symmetric"),
        (lambda: Relaxing(initial=D0, mean=np.eye(2)), "mean: has the wrong shape"),
        (lambda: Relaxing(initial=np.triu(D0[0]), mean=MEAN[0]), "D: is not symmetric"),
        (lambda: Perturbed(Constant(B=D0, V=D0)), r"(?s)no tied heads.*free heads B, V"),
        (lambda: Perturbed(Constant(A=np.eye(3))), r"(?s)no tied heads.*without attention"),
        (lambda: Perturbed(OrnsteinUhlenbeck(initial=D0, mean=MEAN)), r"(?s)random.*draw one path first"),
        (lambda: Perturbed(SETTLING, shift=np.triu(S[0])), "shift: is not symmetric"),
        (lambda: Perturbed(SETTLING, shift=S[:, :2, :2]), "shift: has the wrong shape"),
    ],
)
def test_what_does_not_fit_is_refused(make, part):
    with pytest.raises(InputError, match=part):
        make()
