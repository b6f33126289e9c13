"""How does `--set key.path=value` change a config? The value is TOML, or bare text where it is none."""

import tomllib
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from jaxflow.errors import InputError


def override(data: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A copy of `data` with each `key.path=value` applied in turn.

    A missing table is created, because it may be optional in the schema; a key that the schema
    does not know is refused later, with the list of keys that it does.
    """
    data = deepcopy(data)
    for setting in settings:
        path, equals, text = setting.partition("=")
        parts = path.strip().split(".")
        if not equals or not all(parts):
            raise InputError(
                "not of the form key.path=value",
                where=f"--set {setting}",
                expected="for example --set solve.t1=2.0 or --set weights.segments.0.duration=0.5",
            )
        _assign(data, parts, _parse(text.strip()), where=f"--set {setting}")
    return data


def _parse(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    # A line break inside the text would smuggle in further keys.
    return parsed["value"] if parsed.keys() == {"value"} else text


def _assign(node: Any, parts: list[str], value: Any, *, where: str) -> None:
    for depth, part in enumerate(parts[:-1]):
        key = _key(node, part, parts[:depth], where)
        if isinstance(node, dict):
            node.setdefault(key, {})
        node = node[key]
    node[_key(node, parts[-1], parts[:-1], where)] = value


def _key(node: Any, part: str, before: list[str], where: str) -> str | int:
    """What `part` means inside `node`: a key of a table, or an index into a list."""
    here = ".".join(before)
    if isinstance(node, dict):
        return part
    if not isinstance(node, list):
        raise InputError(f"{here} is a single value, without keys", where=where, got=repr(node))
    if not part.isdecimal() or int(part) >= len(node):
        raise InputError(
            f"{here} is a list of {len(node)} items",
            where=where,
            got=part,
            expected=f"an index from 0 to {len(node) - 1}",
        )
    return int(part)
