"""How are named arrays stored? One `.safetensors` file: names are dotted, metadata is text to text."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxflow.errors import InputError
from jaxflow.io.atomic import replacing


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], *, metadata: Mapping[str, str] | None = None) -> None:
    """Write `arrays` and `metadata` to `path`, atomically. Shapes and dtypes are kept, scalars included."""
    # Safetensors stores the bytes as they lie in memory, so a transposed view needs a copy first.
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with replacing(path) as temporary:
        save_file(ordered, temporary, metadata=dict(metadata or {}))


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read every array of `path`, and its metadata.

    Raises:
        InputError: the file is missing or is no safetensors file.
    """
    if not path.is_file():
        raise InputError("the file of arrays does not exist", where=str(path))
    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})
    except SafetensorError as error:
        raise InputError("the file is no valid safetensors file", where=str(path), got=error) from None
