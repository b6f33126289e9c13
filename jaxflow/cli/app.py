"""Which commands are there, with which options? This file loads neither jax nor matplotlib."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from jaxflow.cli.exits import exit_codes

app = Typer(
    help="Transformers as flows of measures: run, check and plot experiments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Platform(StrEnum):
    """What to compute on."""

    cpu = "cpu"
    gpu = "gpu"
    tpu = "tpu"


class Precision(StrEnum):
    """What to compute in."""

    float64 = "float64"
    float32 = "float32"


@app.command()
def run(
    config: Annotated[Path | None, Argument(metavar="CONFIG.toml", help="The experiment to run.")] = None,
    *,
    overrides: Annotated[
        list[str] | None, Option("--set", metavar="KEY.PATH=VALUE", help="Change a key of the config.")
    ] = None,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="The run directory; if absent, runs/NAME, numbered.")
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Go on with the interrupted run in --out.")] = False,
    platform: Annotated[Platform | None, Option(help="Where to compute; if absent, on the best device.")] = None,
    precision: Annotated[Precision | None, Option(help="Width of numbers; if absent, float64.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Check and describe, but run nothing.")] = False,
    quiet: Annotated[bool, Option("--quiet", help="Print only the run directory.")] = False,
) -> None:
    """Run the experiment in a config file."""
    from jaxflow.cli.run import run as run_config

    with exit_codes():
        run_config(
            config,
            overrides=overrides or [],
            out=out,
            resume=resume,
            platform=platform.value if platform else None,
            precision=precision.value if precision else None,
            dry_run=dry_run,
            quiet=quiet,
        )


@app.command("list")
def list_() -> None:
    """List kinds of experiments with their keys, configs, and checks."""
    from jaxflow.cli.listing import print_listing

    with exit_codes():
        print_listing()


@app.command()
def verify(
    only: Annotated[str | None, Option(metavar="NAME", help="Part of a check's name, or a pattern with *.")] = None,
    json_file: Annotated[Path | None, Option("--json", metavar="FILE", help="Write the results here.")] = None,
) -> None:
    """Compare jaxflow with exact answers from the literature."""
    from jaxflow.cli.verify import verify as run_checks

    with exit_codes():
        run_checks(only=only, json_file=json_file)


@app.command()
def plot(
    run_dir: Annotated[Path, Argument(metavar="RUN_DIR", help="A finished run.")],
    *,
    animate: Annotated[bool, Option("--animate", help="Draw a film (.gif) of a steering run instead.")] = False,
) -> None:
    """Draw the figures of a finished run again."""
    from jaxflow.cli.plot import plot as draw_again

    with exit_codes():
        draw_again(run_dir, film=animate)


@app.command()
def bench(
    names: Annotated[list[str] | None, Argument(metavar="[NAME]…", help="Parts of names; without any, all.")] = None,
    json_file: Annotated[Path | None, Option("--json", metavar="FILE", help="Write the results here.")] = None,
) -> None:
    """Measure speed beside the peers (in a checkout, with the extra [bench])."""
    from jaxflow.cli.bench import bench as run_benchmarks

    with exit_codes():
        run_benchmarks(names or [], json_file=json_file)


@app.command()
def doctor() -> None:
    """Check that this machine computes correctly."""
    from jaxflow.cli.doctor import doctor as examine

    with exit_codes():
        examine()
