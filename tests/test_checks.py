"""Do mistakes in arguments raise, in five parts, and do checks stay out of the way of tracers?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxflow import _checks
from jaxflow.errors import InputError, NumericalError


def test_a_message_has_five_parts_and_moves_outwards():
    error = InputError("is wrong", where="mean", got=3, expected="4", fix="add one").at("start")
    assert str(error) == "start.mean: is wrong\n  got: 3\n  expected: 4\n  fix: add one"
    assert str(InputError("is wrong")) == "is wrong"
    assert isinstance(error, ValueError)
    numerical = NumericalError("it stopped", status="nonfinite", advice="smaller steps")
    assert str(numerical) == "it stopped (status: nonfinite)\n  fix: smaller steps"


def test_as_float_keeps_precision_and_promotes_integers_only():
    assert _checks.as_float(jnp.ones(2, jnp.float32), "x").dtype == jnp.float32
    assert _checks.as_float([1, 2], "x").dtype == jnp.float64
    assert _checks.as_float([1, 2], "x", jnp.float32).dtype == jnp.float32


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("text", "array of numbers"),
        (1j, "must be real"),
        ([1.0, np.nan, np.inf], "2 of 3 are NaN or infinite"),
    ],
)
def test_as_float_refuses(value, part):
    with pytest.raises(InputError, match=part):
        _checks.as_float(value, "x")


def test_shapes_symmetry_precision_and_sign():
    _checks.check_shape(jnp.ones((2, 3)), ("n", 3), "x")
    with pytest.raises(InputError, match=r"(?s)x: has the wrong shape.*got: \(2, 3\).*expected: \(n, 4\)"):
        _checks.check_shape(jnp.ones((2, 3)), ("n", 4), "x")
    _checks.check_symmetric(jnp.eye(2).at[0, 1].set(1e-13), "D", "")
    with pytest.raises(InputError, match=r"largest asymmetry 1\.00e-06"):
        _checks.check_symmetric(jnp.eye(2).at[0, 1].set(1e-6), "D", "")
    with pytest.raises(InputError, match=r"(?s)mixes precisions.*a float32, b float64"):
        _checks.check_same_dtype({"a": jnp.ones(1, jnp.float32), "b": jnp.ones(1)})
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="must be positive"):
            _checks.check_positive(bad, "x")


def test_checks_on_values_are_silent_under_jit():
    @jax.jit
    def f(x):
        _checks.check_symmetric(x, "x", "")
        _checks.check_positive(x[0, 0], "x")
        return _checks.as_float(x, "x")

    assert f(-jnp.asarray([[1.0, 2.0], [3.0, 4.0]])).shape == (2, 2)
