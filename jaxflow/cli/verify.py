"""Does jaxflow still agree with the exact answers? Runs the checks one by one and prints a row for each."""

from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from jaxflow.cli.exits import FAILED, stop
from jaxflow.errors import InputError


def verify(*, only: str | None, json_file: Path | None) -> None:
    """Run the checks whose name contains or matches `only`; stop with code 3 if one fails."""
    from jaxflow.runtime import configure

    configure(platform=None, precision="float64")

    from jaxflow.scenarios import checks

    selected = select(checks(), only)
    width = max(len(check.name) for check in selected)
    print(f"{'check':<{width}}  {'exact':>14}  {'computed':>14}  {'error':>8}  {'allowed':>8}  {'':6}  seconds")
    results = []
    for check in selected:
        result = check.run()
        results.append(result)
        verdict = "passed" if result.passed else "FAILED"
        numbers = f"{result.exact:14.8g}  {result.computed:14.8g}  {result.error:8.1e}  {result.tolerance:8.1e}"
        print(f"{result.name:<{width}}  {numbers}  {verdict}  {result.seconds:.1f}", flush=True)
    if json_file is not None:
        _write(json_file, results)
    failed = [result.name for result in results if not result.passed]
    if failed:
        raise stop(f"{len(failed)} of {len(results)} checks failed: {', '.join(failed)}", FAILED)
    print(f"all {len(results)} checks passed")


def select(checks: tuple[Any, ...], only: str | None) -> list[Any]:
    """The checks named by a part of their name or by a pattern such as `blow_up*`."""
    selected = [check for check in checks if only is None or only in check.name or fnmatch(check.name, only)]
    if not selected:
        names = ", ".join(check.name for check in checks)
        raise InputError("no check has this name", where="--only", got=only, expected=f"a part of one of {names}")
    return selected


def _write(path: Path, results: list[Any]) -> None:
    from jaxflow.io.jsonfile import write_json
    from jaxflow.io.manifest import PACKAGES, installed_version

    versions = {name: installed_version(name) for name in PACKAGES}
    write_json(path, {"versions": versions, "checks": [asdict(result) for result in results]})
