"""Are closure, blocks and phase well asked? Layers that have what each of them changes, and distinct names."""

import re
from collections.abc import Iterable

from jaxflow.errors import InputError
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.checks.weights import check_layer, check_weights
from jaxflow.experiments.schema.regimes import Case, Grid, Steps, Sweep
from jaxflow.experiments.schema.weights import Constant


def check_closure(weights: Constant, sweep: Sweep, steps: Steps, d: int) -> None:
    """Check `[weights]`, `[sweep]` and `[solve]` of a closure run."""
    check_weights(weights, d, "the start")
    refuse_given(weights, ("D", "heads"), "weights", "scaling B alone leaves no tied head; give `B` and `V`")
    if weights.B is None:
        raise InputError("there is no attention to scale", where="weights.B", got="nothing", expected="`B` and `V`")
    if not any(entry for head in weights.B for row in head for entry in row):
        raise InputError("attention of strength zero cannot be scaled", where="weights.B", got="zeros")
    if not (sweep.n or sweep.nodes):
        raise InputError("there is no cloud to measure", where="sweep", expected="`n` or `nodes`, or both")
    for name, values in (("kappa", sweep.kappa), ("n", sweep.n), ("nodes", sweep.nodes)):
        if list(values) != sorted(set(values)):
            raise InputError("must increase", where=f"sweep.{name}", got=values, expected="increasing numbers")
    for index, n in enumerate(sweep.n):
        if n <= d:
            raise InputError(
                "so few tokens have no covariance", where=f"sweep.n[{index}]", got=n, expected=f"more than d = {d}"
            )
    if steps.dt > steps.t1:
        raise InputError(
            "the step is longer than the run",
            where="solve.dt",
            got=steps.dt,
            expected=f"at most solve.t1 = {steps.t1}",
        )


def check_cases(cases: list[Case], n: int, d: int) -> None:
    """Check `[[cases]]` of a blocks run, and that its tokens have a covariance."""
    if n <= d:
        raise InputError("so few tokens have no covariance", where="blocks.n", got=n, expected=f"more than d = {d}")
    if not cases:
        raise InputError("there is no case", where="cases", expected="at least one table [[cases]]")
    for index, case in enumerate(cases):
        check_layer(case, f"cases[{index}]", d, "the start")
    check_names([case.name for case in cases])


def key_of(name: str) -> str:
    """The name of a case as the beginning of a key of the summary."""
    return re.sub(r"\W+", "_", name).strip("_").lower()


def check_names(names: Iterable[str]) -> None:
    """Refuse two cases whose names would be one key."""
    seen: dict[str, str] = {}
    for index, name in enumerate(names):
        other = seen.setdefault(key_of(name), name)
        if index >= len(seen):
            raise InputError(
                "two cases share a name",
                where=f"cases[{index}].name",
                got=repr(name),
                expected=f"a name that differs from {other!r} in letters or digits",
            )


def check_phase(weights: Constant, grid: Grid, d: int) -> None:
    """Check `[weights]` and `[grid]` of a phase diagram."""
    refuse_given(weights, ("D", "B", "V", "heads", "b"), "weights", "the grid sets V = vI and B = bI; only `A` is free")
    check_weights(weights, d, "the start")
    for name, (low, high) in (("v", grid.v), ("b", grid.b)):
        if not low < high:
            raise InputError("this is no range", where=f"grid.{name}", got=[low, high], expected="[low, high]")
