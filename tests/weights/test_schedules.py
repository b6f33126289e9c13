"""Layers that change with depth: which layer acts when, and how fast it changes."""

import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.errors import InputError
from jaxflow.weights import Constant, Function, Piecewise, Sampled, make_layer

D4 = oracles.symmetric(4, 3)[:, None]


def test_each_piece_owns_its_left_end_and_the_last_one_both():
    w = Piecewise(D=D4, durations=[0.5, 0.25, 0.25, 1.0])
    assert w.edges == (0.0, 0.5, 0.75, 1.0, 2.0)
    for t, i in [(0.0, 0), (0.49, 0), (0.5, 1), (0.74, 1), (0.75, 2), (1.0, 3), (2.0, 3)]:
        np.testing.assert_array_equal(w.at(t).B, D4[i])
    np.testing.assert_array_equal(w.piece(2).at(0.0).B, D4[2])
    np.testing.assert_array_equal(w.drift(0.6), np.zeros((1, 3, 3)))


def test_equal_durations_come_from_t1():
    assert Piecewise(D=D4, t1=3.0).edges == (0.0, 0.75, 1.5, 2.25, 3.0)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, "exactly one of t1 and durations"),
        ({"t1": 1.0, "durations": [1.0] * 4}, "exactly one of t1 and durations"),
        ({"durations": [1.0] * 3}, r"(?s)durations: must be one positive time per layer.*4 of them"),
        ({"durations": [1.0, 1.0, 0.0, 1.0]}, "durations: must be one positive time per layer"),
        ({"t1": -1.0}, "durations: must be one positive time per layer"),
    ],
)
def test_piecewise_refuses(arguments, part):
    with pytest.raises(InputError, match=part):
        Piecewise(D=D4, **arguments)


def test_sampled_layers_are_joined_by_straight_lines():
    ts = jnp.asarray([0.0, 1.0, 1.5, 3.0])
    w = Sampled(ts, make_layer(D=D4, lead=1))
    np.testing.assert_allclose(w.at(0.25).B, 0.75 * D4[0] + 0.25 * D4[1], atol=1e-15)
    np.testing.assert_allclose(w.at(1.5).V, D4[2], atol=1e-15)
    np.testing.assert_allclose(w.at(2.0).B, D4[2] + (D4[3] - D4[2]) / 3, atol=1e-15)
    np.testing.assert_allclose(w.drift(2.0), (D4[3] - D4[2]) / 1.5, atol=1e-14)
    for outside, layer in [(-1.0, 0), (4.0, 3)]:
        np.testing.assert_allclose(w.at(outside).B, D4[layer], atol=1e-15)
        np.testing.assert_array_equal(w.drift(outside), np.zeros((1, 3, 3)))


def test_a_function_of_time_and_its_drift():
    w = Function(lambda t: make_layer(B=jnp.cos(2 * t) * D4[0], V=t * D4[1]))
    np.testing.assert_allclose(w.at(0.3).B, np.cos(0.6) * D4[0], atol=1e-15)
    np.testing.assert_allclose(w.drift(0.3), -2 * np.sin(0.6) * D4[0], atol=1e-14)


def test_constant_weights_do_not_drift():
    w = Constant(D=D4[0])
    np.testing.assert_array_equal(w.drift(0.3), np.zeros((1, 3, 3)))
    assert w.edges == ()
    assert not w.random
