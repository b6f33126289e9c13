"""What makes a layer: masses, shapes, signs, and the refusals."""

import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.errors import InputError
from jaxflow.weights import Constant, Layer, make_layer
from jaxflow.weights.layer import check_direction, sign_of

I3, G3 = np.eye(3), oracles.general(3, 3)


def test_tied_heads_average_and_free_heads_sum():
    tied = make_layer(D=oracles.symmetric(4, 3))
    np.testing.assert_allclose(tied.mass, 0.25)
    assert tied.tied
    np.testing.assert_array_equal(tied.B, tied.V)
    free = make_layer(B=oracles.general(4, 3, 3), V=oracles.general(4, 3, 3))
    np.testing.assert_allclose(free.mass, 1.0)
    assert not free.tied
    np.testing.assert_allclose(make_layer(D=I3, mass=[0.3]).mass, 0.3)


def test_one_head_needs_no_head_axis():
    layer = make_layer(B=I3, V=G3)
    assert layer.heads == 1
    assert layer.B.shape == (1, 3, 3)
    np.testing.assert_array_equal(layer.V[0], G3)


def test_a_layer_knows_its_sizes():
    layer = make_layer(A=G3, b=np.ones(3))
    assert (layer.dim, layer.heads) == (3, 0)
    assert make_layer(b=np.ones(2)).dim == 2
    segments = make_layer(D=oracles.symmetric(5, 3), lead=1)
    assert segments.B.shape == (5, 1, 3, 3)
    assert segments.mass.shape == (5, 1)
    assert segments.heads == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, "describe no layer"),
        ({"mass": [1.0]}, "describe no layer"),
        ({"D": I3, "B": I3, "V": I3}, "gives tied and free heads at once"),
        ({"B": I3}, "gives only one of B and V"),
        ({"A": I3, "V": I3}, "gives only one of B and V"),
        ({"D": G3}, "D: is not symmetric"),
        ({"B": I3, "V": np.eye(2)}, "V: has the wrong shape"),
        ({"A": np.ones((3, 2))}, "A: has the wrong shape"),
        ({"A": I3, "b": np.ones(2)}, "b: has the wrong shape"),
        ({"D": I3, "mass": [0.5, 0.5]}, "mass: has the wrong shape"),
        ({"A": I3, "b": np.ones(3, np.float32)}, "mixes precisions"),
        ({"D": I3 * np.nan}, "D: holds values that are not finite"),
    ],
)
def test_refusals(arguments, part):
    with pytest.raises(InputError, match=part):
        make_layer(**arguments)


def test_a_direction_belongs_to_tied_heads():
    tied, free = make_layer(D=I3), make_layer(B=I3, V=I3)
    for direction in (None, "down"):
        with pytest.raises(InputError, match="direction: is needed for tied heads"):
            check_direction(tied, direction)
    with pytest.raises(InputError, match="direction: does not apply to free heads"):
        check_direction(free, "descend")
    check_direction(free, None)
    assert [sign_of(x) for x in ("descend", "ascend", None)] == [-1, 1, 1]


def test_precision_is_that_of_the_arrays():
    layer = make_layer(D=jnp.eye(3, dtype=jnp.float32))
    assert layer.dtype == jnp.float32
    assert layer.mass.dtype == jnp.float32
    assert isinstance(Constant(A=I3).at(0.3), Layer)
