"""How are the figures of a finished run drawn again? From its arrays, without running anything."""

from pathlib import Path

from jaxflow.errors import InputError


def plot(path: Path, *, film: bool = False) -> None:
    """Draw the figures of the run in `path`, or its film, and print where they are."""
    from jaxflow.experiments.figures import animate, draw
    from jaxflow.experiments.load import load
    from jaxflow.experiments.request import recorded_precision
    from jaxflow.io.arrays import load_arrays
    from jaxflow.io.jsonfile import read_json
    from jaxflow.io.rundir import RunDirectory

    run_dir = RunDirectory(path)
    if not run_dir.arrays.is_file():
        raise InputError(
            "there are no results to plot",
            where=str(path),
            expected="the directory of a finished run",
            fix="check the path, or finish the run with jaxflow run --resume --out",
        )
    experiment = load(run_dir.config, precision=recorded_precision(run_dir))
    arrays, _ = load_arrays(run_dir.arrays)
    if film:
        for name in animate(run_dir, experiment, arrays=arrays):
            print(f"{run_dir.figures / name}.gif")
        return
    for name in draw(run_dir, experiment, arrays=arrays, summary=read_json(run_dir.summary)):
        print(f"{run_dir.figures / name}.png and .pdf")
