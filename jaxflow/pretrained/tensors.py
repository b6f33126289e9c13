"""Which tensors does a folder hold, and are they those its model needs? Each is asked for once, with its shape."""

from pathlib import Path
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from safetensors import SafetensorError, safe_open

from jaxflow.errors import InputError
from jaxflow.pretrained.parts import LayerNorm, Linear

SHOWN = 8
"""So many names are listed in a message."""


def read(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of `model.safetensors`.

    Raises:
        InputError: there is no such file, or it is a pickle (which may run code when opened: refused unread).
    """
    path = folder / "model.safetensors"
    if not path.is_file():
        others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".h5"))
        parts = sorted(p.name for p in folder.glob("model*.safetensors*"))
        raise InputError(
            "holds no model.safetensors",
            where=str(folder),
            got=", ".join(others + parts) or "no weights",
            expected="the weights in one file model.safetensors; pickles are refused, they may run code when opened",
            fix="model.save_pretrained(folder, safe_serialization=True) in transformers writes one",
        )
    with path.open("rb") as file:
        start = file.read(2)
    if start in (b"PK", b"\x80\x02", b"\x80\x04", b"\x80\x05"):
        raise InputError(
            "is a pickle and not a safetensors file: refused unread, it may run code when opened",
            where=str(path),
            fix="save it again with safe_serialization=True",
        )
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError("is no valid safetensors file", where=str(path), got=error) from None


@final
class Tensors:
    """Named tensors that are taken one by one; `close` says which were missing, misshapen, or left over.

    Args:
        found: by name.
        prefixes: names may begin with one of these ("bert."), or not.
        ignored: beginnings of names that no hidden state depends on, such as those of task heads.
    """

    def __init__(
        self, found: dict[str, np.ndarray], *, prefixes: tuple[str, ...], ignored: tuple[str, ...], dtype: Any
    ):
        self.found = dict(found)
        for prefix in prefixes:
            if any(name.startswith(prefix) for name in found):
                self.found = {name.removeprefix(prefix): x for name, x in found.items()}
        self.ignored, self.dtype = ignored, dtype
        self.taken: set[str] = set()
        self.missing: list[str] = []
        self.misshapen: list[str] = []

    def take(self, name: str, *shape: int) -> Array:
        """The tensor of this name and shape; zeros after a mistake, which `close` reports."""
        self.taken.add(name)
        x = self.found.get(name)
        if x is None:
            self.missing.append(name)
        elif x.shape != shape:
            self.misshapen.append(f"{name} {x.shape}, expected {shape}")
        if x is None or x.shape != shape:
            return jnp.zeros(shape, self.dtype)
        return jnp.asarray(x, self.dtype)

    def linear(self, name: str, out: int, size: int, *, bias: bool = True) -> Linear:
        """`name.weight` (out, size) and `name.bias`."""
        return Linear(self.take(f"{name}.weight", out, size), self.take(f"{name}.bias", out) if bias else None)

    def norm(self, name: str, size: int, eps: float, *, bias: bool = True) -> LayerNorm:
        """`name.weight` and `name.bias`, (size,)."""
        return LayerNorm(self.take(f"{name}.weight", size), self.take(f"{name}.bias", size) if bias else None, eps)

    def close(self, where: str) -> None:
        """Raise InputError with every tensor that is missing, has another shape, or has no place in the model."""
        extra = sorted(name for name in self.found if name not in self.taken and not name.startswith(self.ignored))
        said = []
        for words, names in (
            ("missing", self.missing),
            ("of another shape", self.misshapen),
            ("without a place", extra),
        ):
            if names:
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                said.append(f"{len(names)} {words}: {', '.join(names[:SHOWN])}{more}")
        if said:
            raise InputError(
                "does not hold the tensors of its config",
                where=where,
                got="; ".join(said),
                expected=f"the {len(self.taken)} tensors of the model that config.json describes",
                fix="take config.json and model.safetensors from the same model",
            )
