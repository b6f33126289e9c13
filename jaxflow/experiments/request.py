"""What does the user ask for? A checked Experiment, where its run goes, and how precise it is."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from jaxflow.errors import InputError
from jaxflow.experiments.data import localised
from jaxflow.experiments.load import load
from jaxflow.experiments.paths import Parts, dotted, short
from jaxflow.experiments.schema import Experiment
from jaxflow.io.jsonfile import read_json
from jaxflow.io.rundir import RunDirectory, default_directory

Precision = Literal["float64", "float32"]
DEFAULT_PRECISION: Precision = "float64"


@dataclass(frozen=True)
class Request:
    """One run to do. `folder` holds the data files that the Experiment names."""

    experiment: Experiment
    folder: Path
    run_dir: RunDirectory
    precision: Precision
    resume: bool = False


def new_run(
    config: Path,
    *,
    overrides: Iterable[str] = (),
    out: Path | None = None,
    precision: Precision | None = None,
) -> Request:
    """The request for a new run of `config` in `out`, or in the first free folder under `runs/`."""
    precision = precision or DEFAULT_PRECISION
    experiment = load(config, overrides, precision=precision)
    run_dir = default_directory(config) if out is None else RunDirectory(out)
    run_dir.require_free()
    return Request(experiment, config.parent, run_dir, precision)


def resumed_run(
    config: Path | None,
    *,
    overrides: Iterable[str] = (),
    out: Path | None,
    precision: Precision | None = None,
) -> Request:
    """The request to go on with the interrupted run in `out`.

    Args:
        config: must describe the same run; None takes the one that lies in `out`.
        overrides: as for a new run; the result must be the same run.
        out: the run directory.
        precision: must be that of the run; None takes it from there.
    """
    if out is None:
        raise InputError("nothing says which run to resume", where="--resume", fix="add --out RUN_DIR")
    run_dir = RunDirectory(out)
    run_dir.require_unfinished()
    recorded = recorded_precision(run_dir)
    if precision not in (None, recorded):
        raise InputError("a run is resumed at its own precision", where="--precision", got=precision, expected=recorded)
    before = load(run_dir.config, precision=recorded)
    config = config or run_dir.config
    asked, _ = localised(load(config, overrides, precision=recorded), folder=config.parent)
    difference = first_difference(msgspec.to_builtins(before), msgspec.to_builtins(asked))
    if difference is not None:
        parts, old, new = difference
        raise InputError(
            "the config differs from that of the interrupted run",
            where=dotted(parts),
            got=short(new),
            expected=short(old),
            fix="resume without a config and without --set, or start a new run with another --out",
        )
    return Request(before, run_dir.path, run_dir, recorded, resume=True)


def recorded_precision(run_dir: RunDirectory) -> Precision:
    """The precision that the manifest of a run names."""
    return "float32" if read_json(run_dir.manifest)["precision"] == "float32" else "float64"


def first_difference(old: Any, new: Any, parts: Parts = ()) -> tuple[Parts, Any, Any] | None:
    """Where two configs first differ, and the two values there; None if they are the same."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        pairs = [((*parts, key), old[key], new[key]) for key in old]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [((*parts, index), *values) for index, values in enumerate(zip(old, new))]
    else:
        return None if old == new else (parts, old, new)
    found = (first_difference(before, after, place) for place, before, after in pairs)
    return next((difference for difference in found if difference is not None), None)
