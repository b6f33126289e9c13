"""How do results become strict JSON? NumPy values turn plain, and NaN and infinities turn into null."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxflow.errors import InputError
from jaxflow.io.atomic import write_text


def plain(value: Any) -> Any:
    """The same value in JSON's own types; a number that is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def one_line(value: Any) -> str:
    """`value` as JSON on a single line."""
    return json.dumps(plain(value), allow_nan=False, ensure_ascii=False)


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as indented JSON, atomically."""
    write_text(path, json.dumps(plain(value), allow_nan=False, ensure_ascii=False, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in `path`.

    Raises:
        InputError: the file is missing, is no JSON, or holds something other than an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("the file does not exist", where=str(path)) from None
    except ValueError as error:
        raise InputError("the file is no valid JSON", where=str(path), got=error) from None
    if not isinstance(value, dict):
        raise InputError("the file must hold a JSON object", where=str(path), got=type(value).__name__)
    return value
