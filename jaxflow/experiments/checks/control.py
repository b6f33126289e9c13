"""Is steering well asked? Known matrices, and only the keys that the method reads."""

from jaxflow.errors import InputError
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.defaults import CONTROL_DEFAULTS
from jaxflow.experiments.schema import Control
from jaxflow.experiments.schema.tokens import SteerTokens

MATRICES = "ABVb"


def check_control(control: Control) -> None:
    """Check `[control]`."""
    letters = control.allow
    check_letters(letters)
    optional = dict.fromkeys(key for keys in CONTROL_DEFAULTS.values() for key in keys)
    unused = [key for key in optional if key not in CONTROL_DEFAULTS[control.method]]
    refuse_given(control, unused, "control", f"method {control.method} does not read it")
    _check_time(control)
    if control.controls == "mlp":
        refuse_given(control, ["segments"], "control", "a network of time has no segments")
    if (control.heads or 1) > 1 and not {"B", "V"} <= set(letters):
        refuse_given(control, ["heads"], "control", "several heads need B and V in control.allow")
    if control.symmetric_B and "B" not in letters:
        refuse_given(control, ["symmetric_B"], "control", "B is not in control.allow")
    for name, r in control.limits.items():
        if name not in letters:
            raise InputError(
                f"an option that does not apply: {name} is not in control.allow",
                where=f"control.bounds.{name}",
                got=r,
                expected="no such key here",
                fix=f"remove it, or allow {name}",
            )


def check_letters(letters: str) -> None:
    """Check `control.allow`."""
    if not letters or set(letters) - set(MATRICES) or len(set(letters)) != len(letters):
        raise InputError(
            "these are no free matrices",
            where="control.allow",
            got=repr(letters),
            expected=f"some of the letters {MATRICES}, each at most once",
        )


def _check_time(control: Control) -> None:
    """One time, or two increasing ones, which the closed form does not take; a weight only of a free time."""
    if not isinstance(control.t1, list):
        refuse_given(control, ["time_weight"], "control", "control.t1 is one fixed time")
        return
    if control.method in ("constructive", "cheapest"):
        raise InputError(f"method {control.method} takes one fixed time", where="control.t1", got=control.t1)
    if not control.t1[0] < control.t1[1]:
        raise InputError("must increase", where="control.t1", got=control.t1, expected="[earliest, latest]")


def check_steer_tokens(tokens: SteerTokens, t1: float) -> None:
    """Check `[tokens]` of a steering run."""
    if tokens.dt > t1:
        raise InputError(
            "the step is longer than the run",
            where="tokens.dt",
            got=tokens.dt,
            expected=f"at most control.t1 = {t1}",
        )
