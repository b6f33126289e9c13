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
    if not letters or set(letters) - set(MATRICES) or len(set(letters)) != len(letters):
        raise InputError(
            "these are no free matrices",
            where="control.allow",
            got=repr(letters),
            expected=f"some of the letters {MATRICES}, each at most once",
        )
    optional = dict.fromkeys(key for keys in CONTROL_DEFAULTS.values() for key in keys)
    unused = [key for key in optional if key not in CONTROL_DEFAULTS[control.method]]
    refuse_given(control, unused, "control", f"method {control.method} does not read it")


def check_steer_tokens(tokens: SteerTokens, t1: float) -> None:
    """Check `[tokens]` of a steering run."""
    if tokens.dt > t1:
        raise InputError(
            "the step is longer than the run",
            where="tokens.dt",
            got=tokens.dt,
            expected=f"at most control.t1 = {t1}",
        )
