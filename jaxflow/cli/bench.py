"""What does `jaxflow bench` do? It runs the benchmarks of a checkout in a process of their own, by pytest."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import typer

import jaxflow
from jaxflow.errors import InputError

NEEDS = ("pytest", "pytest_benchmark", "torch", "torchdiffeq", "casadi")

FOUND_NOTHING = 5
"""pytest's exit code when it collected no test."""


def bench(names: list[str], *, json_file: Path | None) -> None:
    """Run the benchmarks whose file or test names contain one of `names`; without names, all."""
    folder = Path(jaxflow.__file__).parents[1] / "benchmarks"
    if not folder.is_dir():
        raise InputError(
            "the benchmarks are not part of the installed package",
            where="bench",
            got=str(folder),
            fix="run it from a checkout of the repository, installed with pip install -e '.[bench]'",
        )
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        raise InputError(
            "the peers are not installed", where="bench", got=", ".join(missing), fix="pip install -e '.[bench]'"
        )
    # The package's own pytest settings skip benchmarks and start workers; both would spoil them.
    options = ["-n0", "--benchmark-only", "-s", "-q", "--override-ini=timeout=0"]
    options += ["-k", " or ".join(names)] if names else []
    options += [f"--benchmark-json={json_file}"] if json_file else []
    code = subprocess.run([sys.executable, "-m", "pytest", str(folder), *options], check=False).returncode
    if code == FOUND_NOTHING:
        known = ", ".join(sorted(path.stem.removeprefix("test_") for path in folder.glob("test_*.py")))
        raise InputError("no benchmark has such a name", where="NAME", got=", ".join(names), expected=known)
    if code:
        raise typer.Exit(1)
