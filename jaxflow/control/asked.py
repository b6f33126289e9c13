"""Is what was asked for consistent? Options that a method does not read are refused."""

from typing import Any

import numpy as np

from jaxflow._checks import check_positive, is_concrete
from jaxflow.control.curves import AbstractCurve, Lines, Steps, Waves
from jaxflow.control.network import Network
from jaxflow.errors import InputError
from jaxflow.measures import Gaussian


def interval_of(t1: Any, start: Gaussian, target: Gaussian, time_weight: Any) -> tuple[float, float] | None:
    """(low, high) of a free horizon, or None if t1 is one number.

    Raises:
        InputError: not a positive number and no increasing pair of such; a pair while arrays are traced; a weight of
            time where there is no pair.
    """
    if not isinstance(t1, tuple | list):
        check_positive(t1, "t1")
        if not (is_concrete(time_weight) and time_weight == 0):
            raise InputError(
                "does not apply to a fixed horizon", where="time_weight", got=time_weight, fix="give t1=(low, high)"
            )
        return None
    if len(t1) != 2 or not all(np.isfinite(x) and x > 0 for x in t1) or not t1[0] < t1[1]:
        raise InputError("must be one positive time, or two increasing ones", where="t1", got=t1)
    if not all(is_concrete(x) for g in (start, target) for x in (g.mean, g.factor)):
        raise InputError(
            "cannot be free under jit, vmap or grad: the edges of layers in time are static",
            where="t1",
            got=t1,
            fix="call steer outside jit, or search with Problem, begin and advance, which work inside",
        )
    return float(t1[0]), float(t1[1])


def check_plain(method: str, options: dict[str, tuple[Any, Any]]) -> None:
    """The closed form takes none of these: name -> (value, the value that says nothing)."""
    if method != "constructive":
        return
    for name, (value, plain) in options.items():
        if value is not plain and value != plain:
            raise InputError(
                "does not apply to the closed form: linear layers, constant on pieces, without limits",
                where=name,
                got=value,
                fix="leave it out, or take another method",
            )


def check_descent_only(method: str, *, loss: str, smoothness: Any, time_weight: Any) -> None:
    """What shapes the objective is read by the descents alone."""
    if method in ("adam", "lbfgs"):
        return
    found = {"loss": loss != "w2"}
    found |= {
        name: not (is_concrete(value) and value == 0)
        for name, value in (("smoothness", smoothness), ("time_weight", time_weight))
    }
    for name, given in found.items():
        if given:
            raise InputError(
                f"does not apply to {method}: it has no objective, it hits",
                where=name,
                got=loss if name == "loss" else "a weight",
                fix='take method="lbfgs" or "adam"',
            )


def curve_of(name: str, size: int | None) -> AbstractCurve:
    """The curve of this name, with so many pieces ("constant", "linear") or frequencies ("fourier").

    Raises:
        InputError: an unknown name, a size below 1, or a size for "mlp".
    """
    defaults: dict[str, int | None] = {"constant": 10, "linear": 10, "fourier": 3, "mlp": None}
    if name not in defaults:
        raise InputError("is not known", where="controls", got=repr(name), expected=", ".join(defaults))
    if name == "mlp":
        if size is not None:
            raise InputError(
                "does not apply to a network of time", where="segments", got=size,
                fix="leave it out, or pass controls=jf.control.Network(width=…, depth=…)",
            )  # fmt: skip
        return Network()
    size = defaults[name] if size is None else size
    assert size is not None
    if size < 1:
        raise InputError("must be at least 1", where="segments", got=size)
    return {"constant": Steps, "linear": Lines, "fourier": Waves}[name](size)
