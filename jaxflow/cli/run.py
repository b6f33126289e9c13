"""What does `jaxflow run` do? Check the request, then configure jax, then run: in this order."""

import os
from pathlib import Path
from typing import Literal

from jaxflow.cli.exits import FAILED, INTERRUPTED, stop

# A blow-up in finite time is a result of the flow, not a failure of the solver.
SUCCESS = ("done", "blow_up")


def run(
    config: Path | None,
    *,
    overrides: list[str],
    out: Path | None,
    resume: bool,
    platform: Literal["cpu", "gpu", "tpu"] | None,
    precision: Literal["float64", "float32"] | None,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Run a config, or go on with an interrupted run; a dry run only says what it would do."""
    from jaxflow.experiments.request import new_run, resumed_run

    if resume:
        request = resumed_run(config, overrides=overrides, out=out, precision=precision)
    elif config is None:
        raise stop("which config? jaxflow run CONFIG.toml, or jaxflow run --resume --out RUN_DIR", code=2)
    else:
        request = new_run(config, overrides=overrides, out=out, precision=precision)

    # Platform and precision must be chosen before the first use of jax.
    from jaxflow.runtime import configure

    # Independent paths of tokens are spread over the cores of a CPU, one device each.
    paths = getattr(request.experiment, "paths", 1)
    configure(platform=platform, precision=request.precision, cpu_devices=min(paths, os.cpu_count() or 1))

    from jaxflow.experiments import prepare
    from jaxflow.experiments.engine import Interrupted, execute
    from jaxflow.experiments.report import reporter

    job = prepare(request.experiment, folder=request.folder, precision=request.precision)
    if dry_run:
        for name, value in {**job.describe(), "run directory": str(request.run_dir.path)}.items():
            print(f"{name:<17} {value}")
        return
    try:
        result = execute(job, request, reporter=reporter(quiet=quiet))
    except Interrupted as interrupted:
        raise stop(str(interrupted), INTERRUPTED) from None
    status = result.summary["status"]
    if status not in SUCCESS:
        advice = result.summary.get("advice", "")
        raise stop(f"the run ended with status {status}" + (f"\n  fix: {advice}" if advice else ""), FAILED)
