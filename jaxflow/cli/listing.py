"""What is there to run? The kinds of configs and their keys, the configs at hand, the checks."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from jaxflow.experiments.schema import KINDS, Control, Flow, Gaussian, Solve, kind_of
from jaxflow.experiments.schema.base import Table
from jaxflow.experiments.schema.meanfield import Clouds, DensityFlow, Infinite, Start
from jaxflow.experiments.schema.pretrained import Input, Measurement, Model, Prescribed
from jaxflow.experiments.schema.regimes import BlockSizes, Case, Grid, Horizon, Steps, Sweep
from jaxflow.experiments.schema.steer_tokens import Pair, TokenControl, TokenFlow, TokenSteps
from jaxflow.experiments.schema.theorems import (
    Distance,
    LimitCase,
    Minimum,
    Neighbours,
    Perturbed,
    Scheme,
    SphereFlow,
)
from jaxflow.experiments.schema.tokens import Tokens
from jaxflow.experiments.schema.weights import Segment, Weights

TABLES = {
    "[flow]": Flow,
    "[solve]": Solve,
    "[start] and [target]": Gaussian,
    "[control]": Control,
    "[[weights.segments]]": Segment,
    "[[pairs]] of steer_tokens": Pair,
    "[control] of steer_tokens": TokenControl,
    "[flow] of steer_tokens": TokenFlow,
    "[solve] of steer_tokens": TokenSteps,
    "[sweep] of closure": Sweep,
    "[solve] of closure": Steps,
    "[blocks] of blocks": BlockSizes,
    "[[cases]] of blocks": Case,
    "[clouds] of meanfield": Clouds,
    "[flow] of meanfield": DensityFlow,
    "[grid] of phase": Grid,
    "[solve] of phase": Horizon,
    "[model] of pretrained": Model,
    "[input] of pretrained": Input,
    "[measure] of pretrained": Measurement,
    "[prescribed] of pretrained": Prescribed,
    "[distance] of transport": Distance,
    "[scheme] of jko": Scheme,
    "[flow] of stability, perturbation and limits": SphereFlow,
    "[neighbours] of stability": Neighbours,
    "[perturbation] of perturbation": Perturbed,
    "[minimum] of perturbation": Minimum,
    "[[cases]] of limits": LimitCase,
}


def print_listing() -> None:
    """Print kinds and keys, then configs under ./configs, then checks, which take a moment to load."""
    _print_tables("kinds of configs", {kind_of(kind): kind for kind in KINDS})
    _print_tables("kinds of [tokens]", {kind_of(kind): kind for kind in get_args(Tokens)})
    _print_tables("kinds of [weights]", {kind_of(kind): kind for kind in get_args(Weights)})
    _print_tables("kinds of [density] of meanfield", {kind_of(kind): kind for kind in get_args(Start)})
    _print_tables("kinds of [weights] of meanfield alone", {kind_of(Infinite): Infinite})
    _print_tables("other tables", TABLES)
    print("configs")
    for path in sorted(Path("configs").glob("**/*.toml")):
        print(f"  {path}  {_kind_in(path)}  {_first_comment(path)}")
    print("\nchecks for `jaxflow verify`")
    print("\n".join(f"  {line}" for line in _checks()))


def _print_tables(title: str, tables: dict[str, type[Table]]) -> None:
    print(title)
    for name, table in tables.items():
        print(f"  {name}: {_first_line(table.__doc__)}")
        print(f"    keys {', '.join(table.__struct_fields__)}")
    print()


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().split("\n")[0]


def _kind_in(path: Path) -> str:
    try:
        return str(tomllib.loads(path.read_text(encoding="utf-8")).get("kind", "no kind"))
    except tomllib.TOMLDecodeError:
        return "no valid TOML"


def _first_comment(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("#")), "")


def _checks() -> Iterator[str]:
    from jaxflow.scenarios import checks

    return (f"{check.name}  ({check.source})" for check in checks())
