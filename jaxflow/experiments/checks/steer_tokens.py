"""Are clouds well paired, and can this control move them? Everything that one key alone cannot tell."""

from pathlib import Path

from jaxflow.errors import InputError
from jaxflow.experiments.checks.control import check_letters
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.checks.tokens import check_tokens
from jaxflow.experiments.schema import TokenSteer
from jaxflow.experiments.schema.flow import Flow
from jaxflow.experiments.schema.steer_tokens import Clouds, TokenControl


def check_token_steering(experiment: TokenSteer, *, folder: Path, precision: str) -> None:
    """Check a config of kind steer_tokens."""
    dims = {}
    for index, pair in enumerate(experiment.pairs):
        for name, clouds in (("start", pair.start), ("target", pair.target)):
            where = f"pairs[{index}].{name}"
            dims |= check_clouds(clouds, where, experiment.flow.geometry, folder=folder, precision=precision)
    first, d = next(iter(dims.items()))
    for where, other in dims.items():
        if other != d:
            raise InputError("the clouds differ in dimension", where=where, got=other, expected=f"{d}, that of {first}")
    _check_control(experiment.control)
    if experiment.solve.dt is not None and experiment.solve.dt > experiment.control.t1:
        raise InputError(
            "the step is longer than the run",
            where="solve.dt",
            got=experiment.solve.dt,
            expected=f"at most control.t1 = {experiment.control.t1:g}",
        )


def parts(clouds: Clouds, where: str) -> dict[str, Clouds]:
    """The clouds that one entry of a pair is made of, by their paths."""
    return {f"{where}[{i}]": part for i, part in enumerate(clouds)} if isinstance(clouds, list) else {where: clouds}


def check_clouds(clouds: Clouds, where: str, geometry: str, *, folder: Path, precision: str) -> dict[str, int]:
    """Check one entry of a pair; the dimension of each part."""
    if not clouds:
        raise InputError("holds no cloud", where=where, got="[]", expected="a table of tokens, or a list of some")
    found = {}
    for name, part in parts(clouds, where).items():
        flow = Flow(geometry="sphere" if geometry == "sphere" else "euclidean")
        try:
            found[name] = check_tokens(part, flow, folder=folder, precision=precision)  # pyright: ignore[reportArgumentType]
        except InputError as error:
            # Tokens speak of themselves as the table [tokens].
            place = error.where.replace("tokens", name, 1)
            raise InputError(
                error.what, where=place, got=error.got, expected=error.expected, fix=error.fix.replace("tokens", name)
            ) from None
    return found


def _check_control(control: TokenControl) -> None:
    letters = control.allow
    check_letters(letters)
    if "B" in letters and "V" not in letters:
        raise InputError(
            "B acts only through V", where="control.allow", got=repr(letters), expected="B together with V"
        )
    if control.heads > 1 and "B" not in letters:
        raise InputError(
            "without B all heads are one",
            where="control.heads",
            got=f"{control.heads} with allow = {letters!r}",
            expected="1",
        )
    if control.loss != "sinkhorn":
        refuse_given(control, ("epsilon",), "control", f"loss {control.loss} does not read it")
    if control.method != "adam":
        refuse_given(control, ("learning_rate",), "control", f"method {control.method} does not read it")
