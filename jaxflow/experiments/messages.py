"""What is wrong with a config that does not fit the schema? Turns a validation error into full advice."""

import re
from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from jaxflow.errors import InputError
from jaxflow.experiments.heads import as_written
from jaxflow.experiments.paths import Parts, dotted, parts_of, short, value_at
from jaxflow.experiments.schema import Experiment

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text in quotes",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def explain(error: msgspec.ValidationError, data: dict[str, Any]) -> InputError:
    """The InputError that says what, where, got, expected and fix.

    Args:
        error: what the conversion of `data` to an Experiment raised.
        data: the config as parsed from TOML.
    """
    message, _, path = str(error).partition(" - at `$")
    parts = parts_of(path.removesuffix("`"))
    name = re.search(r"`(\w+)`", message)
    if message.startswith("Object contains unknown field") and name:
        return _unknown_key((*parts, name[1]), data)
    if message.startswith("Object missing required field") and name:
        return _missing_key((*parts, name[1]), data)
    if message.startswith("Invalid"):
        return _unknown_choice(parts, data)
    expected = re.sub(r"`([^`]+)`", _in_words, message.partition(", got")[0].removeprefix("Expected "))
    return InputError(
        "this value does not fit",
        where=dotted(as_written(parts, data)),
        got=short(value_at(data, parts)),
        expected=expected,
    )


def _in_words(match: re.Match[str]) -> str:
    return " or ".join(WORDS.get(word, word) for word in match[1].split(" | "))


def _unknown_key(parts: Parts, data: dict[str, Any]) -> InputError:
    keys = keys_at(parts[:-1], data)
    return InputError(
        "unknown key",
        where=dotted(parts),
        expected="one of " + ", ".join(keys),
        fix=suggestion(str(parts[-1]), keys),
    )


def _missing_key(parts: Parts, data: dict[str, Any]) -> InputError:
    if parts[-1] == "kind":
        choices = "one of " + ", ".join(kinds_at(parts[:-1], data))
        return InputError("`kind` is missing", where=dotted(parts), expected=choices, fix="add the line kind = …")
    keys = keys_at(parts[:-1], data)
    return InputError("this key is required and missing", where=dotted(parts), expected="keys " + ", ".join(keys))


def _unknown_choice(parts: Parts, data: dict[str, Any]) -> InputError:
    value = value_at(data, parts)
    choices = kinds_at(parts[:-1], data) if parts[-1] == "kind" else _choices_at(parts, data)
    return InputError(
        "unknown kind" if parts[-1] == "kind" else "unknown choice",
        where=dotted(parts),
        got=short(value),
        expected="one of " + ", ".join(choices),
        fix=suggestion(str(value), choices),
    )


def suggestion(word: str, known: list[str]) -> str:
    """`did you mean …?`, or nothing when no known word is close."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else ""


def keys_at(parts: Parts, data: Any) -> list[str]:
    """The keys of the table at `parts`, `kind` first where it has one."""
    table = _pick(_type_at(parts, data), value_at(data, parts))
    if not isinstance(table, inspect.StructType):
        return []
    return ["kind"] * (table.tag is not None) + [field.name for field in table.fields]


def kinds_at(parts: Parts, data: Any) -> list[str]:
    """The kinds that the table at `parts` may have."""
    return [str(member.tag) for member in _members(_type_at(parts, data)) if isinstance(member, inspect.StructType)]


def _choices_at(parts: Parts, data: Any) -> list[str]:
    members = _members(_type_at(parts, data))
    return [str(value) for member in members if isinstance(member, inspect.LiteralType) for value in member.values]


@cache
def _root() -> inspect.Type:
    return inspect.type_info(Experiment)


def _type_at(parts: Parts, data: Any) -> inspect.Type:
    node, value = _root(), data
    for part in parts:
        node = _pick(node, value)
        if isinstance(node, inspect.StructType):
            node = next(field.type for field in node.fields if field.name == part)
        elif isinstance(node, inspect.ListType):
            node = node.item_type
        value = value[part]
    return node


def _members(node: inspect.Type) -> tuple[inspect.Type, ...]:
    return node.types if isinstance(node, inspect.UnionType) else (node,)


def _pick(node: inspect.Type, value: Any) -> inspect.Type:
    """The member of a union that `value` belongs to: a table by its kind, a list by being one."""
    for member in _members(node):
        if isinstance(member, inspect.ListType) and isinstance(value, list):
            return member
        if not isinstance(member, inspect.StructType) or not isinstance(value, dict):
            continue
        if member.tag is None or member.tag == value.get("kind"):
            return member
    return node
