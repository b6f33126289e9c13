"""How does a config file become an Experiment? Parse, override, convert, check, fill in the defaults."""

import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from jaxflow.errors import InputError
from jaxflow.experiments.checks import check
from jaxflow.experiments.defaults import fill
from jaxflow.experiments.heads import with_lists_of_heads
from jaxflow.experiments.messages import explain
from jaxflow.experiments.overrides import override
from jaxflow.experiments.paths import Parts, dotted
from jaxflow.experiments.schema import Experiment


def load(path: Path, overrides: Iterable[str] = (), *, precision: str = "float64") -> Experiment:
    """Read, check and complete the config at `path`.

    Args:
        path: a TOML file; file names inside it are relative to its folder.
        overrides: settings `key.path=value`, applied in order before anything is checked.
        precision: the precision of the run, which data files must have.

    Raises:
        InputError: with the dotted path of the first mistake.
    """
    return build(override(parse(path), overrides), folder=path.parent, precision=precision)


def parse(path: Path) -> dict[str, Any]:
    """The tables of the TOML file at `path`, unchecked."""
    if not path.is_file():
        raise InputError("the config file does not exist", where=str(path), expected="a TOML file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InputError("the config file is no UTF-8 text", where=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"{path}, line {line[1]}" if line else f"{path}, last line"
        raise InputError(
            "this is no valid TOML", where=where, got=error, fix="text needs quotes, lists need brackets"
        ) from None


def build(data: dict[str, Any], *, folder: Path, precision: str = "float64") -> Experiment:
    """The checked and complete Experiment that the parsed config `data` describes."""
    for parts, number in _numbers(data, ()):
        if not math.isfinite(number):
            raise InputError("not a finite number", where=dotted(parts), got=number, expected="a finite number")
    data = with_lists_of_heads(data)
    try:
        experiment = msgspec.convert(data, Experiment)
    except msgspec.ValidationError as error:
        raise explain(error, data) from None
    check(experiment, folder=folder, precision=precision)
    return fill(experiment)


def resolved(experiment: Experiment) -> str:
    """The Experiment as TOML text that loads to the same Experiment again."""
    text = tomli_w.dumps(_only_given(msgspec.to_builtins(experiment)))
    # One line per innermost list: a matrix then reads as a matrix.
    return re.sub(r"\[\n([^\[\]\"]*)\]", lambda match: f"[{', '.join(match[1].replace(',', ' ').split())}]", text)


def _numbers(value: Any, parts: Parts) -> Iterator[tuple[Parts, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, (*parts, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _numbers(item, (*parts, index))
    elif isinstance(value, float):
        yield parts, value


def _only_given(value: Any) -> Any:
    """`value` without the keys that are None and the tables that are empty: TOML has no null."""
    if isinstance(value, list):
        return [_only_given(item) for item in value]
    if not isinstance(value, dict):
        return value
    given = {key: _only_given(item) for key, item in value.items()}
    return {key: item for key, item in given.items() if item is not None and item != {}}
