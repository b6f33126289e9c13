"""From a folder on disk to an `Encoder`: `config.json` says which model it is, `model.safetensors` has its weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxflow.errors import InputError
from jaxflow.pretrained import bert, modernbert, vit
from jaxflow.pretrained.config import Config
from jaxflow.pretrained.encoder import Encoder
from jaxflow.pretrained.tensors import Tensors, read


class _Family(NamedTuple):
    build: Callable[[Config, Tensors], Encoder]
    prefixes: tuple[str, ...]
    ignored: tuple[str, ...]


FAMILIES = {
    "bert": _Family(bert.build, bert.PREFIXES, bert.IGNORED),
    "modernbert": _Family(modernbert.build, modernbert.PREFIXES, modernbert.IGNORED),
    "vit": _Family(vit.build_vit, vit.PREFIXES, vit.IGNORED),
    "deit": _Family(vit.build_deit, vit.PREFIXES, vit.IGNORED),
    "dinov2": _Family(vit.build_dinov2, vit.PREFIXES, vit.IGNORED),
}
"""By `model_type`."""


def load(folder: str | Path, *, dtype: Any = None) -> Encoder:
    """The encoder in a Hugging Face folder. Nothing is downloaded, and no code of the folder is run.

    Args:
        folder: with `config.json` and `model.safetensors`. Names with and without the model's prefix ("bert.",
            "model.", …) are read; task heads and poolers, on which no hidden state depends, are left out.
        dtype: jnp.float32 or jnp.float64; None: the precision in which the weights are stored.

    Raises:
        InputError: no such folder; a model of another kind (with the list of kinds); an option of the config that is
            not supported; tensors that are missing, misshapen or without a place (with their names); a pickle; weights
            that are not finite.
    """
    folder = Path(folder)
    config = Config(folder / "config.json")
    kind = config.keys.get("model_type")
    if kind not in FAMILIES:
        raise config.error(
            "is no model that jaxflow reads", "model_type", expected=", ".join(FAMILIES), fix="MiniLM is a bert"
        )
    found = read(folder)
    floating = {name: x for name, x in found.items() if x.dtype.kind == "f" or x.dtype.name == "bfloat16"}
    bad = [
        name
        for name, x in floating.items()
        if not np.isfinite(x if x.dtype.kind == "f" else x.astype(np.float32)).all()
    ]
    if bad:
        raise InputError(
            "holds numbers that are not finite", where=str(folder / "model.safetensors"), got=", ".join(bad)
        )
    if dtype is None:
        widest = max((x.dtype.itemsize for x in floating.values()), default=4)
        dtype = jnp.float64 if widest == 8 else jnp.float32
    family = FAMILIES[kind]
    tensors = Tensors(found, prefixes=family.prefixes, ignored=family.ignored, dtype=dtype)
    encoder = family.build(config, tensors)
    tensors.close(str(folder / "model.safetensors"))
    return encoder
