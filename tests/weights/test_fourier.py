"""Layers that are trigonometric polynomials of depth."""

import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.errors import InputError
from jaxflow.weights import Fourier


def test_layers_are_the_sum_of_cosines_and_sines_and_drift_as_it_does():
    B, V, A = (oracles.general(5, 2, 2, seed=i) for i in range(3))
    schedule = Fourier(B=B, V=V, A=A, mass=jnp.asarray([0.5]), t1=2.0)
    t, w = 0.7, np.pi
    terms = [1.0, np.cos(w * t), np.sin(w * t), np.cos(2 * w * t), np.sin(2 * w * t)]
    rates = [0.0, -w * np.sin(w * t), w * np.cos(w * t), -2 * w * np.sin(2 * w * t), 2 * w * np.cos(2 * w * t)]
    layer = schedule.at(t)
    np.testing.assert_allclose(layer.A, np.tensordot(terms, A, 1), atol=1e-14)
    np.testing.assert_allclose(layer.V[0], np.tensordot(terms, V, 1), atol=1e-14)
    np.testing.assert_allclose(schedule.drift(t)[0], np.tensordot(rates, B, 1), atol=1e-13)
    # Masses are no controls: they keep their value.
    np.testing.assert_allclose(layer.mass, [0.5], atol=1e-15)
    assert (schedule.modes, schedule.edges) == (2, ())


def test_coefficients_come_in_odd_numbers_and_periods_are_positive():
    with pytest.raises(InputError, match="must be odd"):
        Fourier(b=jnp.ones((2, 2)), t1=1.0)
    with pytest.raises(InputError, match="t1"):
        Fourier(b=jnp.ones((3, 2)), t1=0.0)
