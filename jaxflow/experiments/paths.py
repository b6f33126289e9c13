"""How is a place in a config written? Parts such as ("weights", "segments", 2) against dotted text."""

import re
from typing import Any

Parts = tuple[str | int, ...]


def dotted(parts: Parts) -> str:
    """`weights.segments[2].A` from its parts."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".")


def parts_of(path: str) -> Parts:
    """The parts of `weights.segments[2].A`."""
    pieces = re.findall(r"\[(\d+)\]|([^.\[\]]+)", path)
    return tuple(int(index) if index else name for index, name in pieces)


def value_at(data: Any, parts: Parts) -> Any:
    """The value that lies at `parts`, which must exist."""
    for part in parts:
        data = data[part]
    return data


def short(value: object, *, limit: int = 80) -> str:
    """`value` as text that fits on a line."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
