"""What lies in a run directory, and how is each file written? The one owner of these paths.

A run directory holds `config.toml` (resolved, can be run again), `manifest.json`, `summary.json`,
`metrics.jsonl`, `arrays.safetensors`, `figures/`, and while it runs `checkpoint.safetensors`.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from jaxflow.errors import InputError
from jaxflow.io.arrays import load_arrays, save_arrays
from jaxflow.io.atomic import replacing, write_text
from jaxflow.io.jsonfile import one_line, read_json, write_json

UNFINISHED = ("running", "interrupted")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a job between two chunks: how far it came, and how many metrics lines that made."""

    state: dict[str, np.ndarray]
    done: int
    total: int
    lines: int


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run. Making this object touches nothing on disk; `create` does."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def arrays(self) -> Path:
        return self.path / "arrays.safetensors"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    def require_free(self) -> None:
        """Raise InputError unless a new run may be written here."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise InputError(
                "the run directory is not empty",
                where=str(self.path),
                expected="a new or empty folder",
                fix="give another --out, or --resume if the run there was interrupted",
            )

    def require_unfinished(self) -> None:
        """Raise InputError unless an interrupted run lies here."""
        if not self.config.is_file():
            raise InputError(
                "there is no run to resume here",
                where=str(self.path),
                expected="the folder of an interrupted run",
                fix="check --out, or start anew without --resume",
            )
        status = self.status()
        if status not in UNFINISHED:
            raise InputError(
                "the run is already finished",
                where=str(self.path),
                got=f"status {status}",
                expected="an interrupted run",
                fix="start a new run without --resume and with another --out",
            )

    def status(self) -> str:
        """What the summary says about this run."""
        return str(read_json(self.summary)["status"])

    def create(self, config: str, data: Mapping[str, Path]) -> None:
        """Make the folder and write the resolved config, with the data files it names beside it."""
        self.require_free()
        self.path.mkdir(parents=True, exist_ok=True)
        for name, source in data.items():
            with replacing(self.path / name) as temporary:
                shutil.copyfile(source, temporary)
        write_text(self.metrics, "")
        self.write_summary({"status": "running"})
        # The config comes last: a folder that has one is a run that can be resumed.
        write_text(self.config, config)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_json(self.summary, summary)

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Add one line to the metrics."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(one_line(metrics) + "\n")

    def keep_metrics(self, lines: int) -> None:
        """Forget the metrics after the first `lines` lines, so that a resumed run writes them only once."""
        kept = self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)[:lines]
        write_text(self.metrics, "".join(kept))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        numbers = {name: str(getattr(checkpoint, name)) for name in ("done", "total", "lines")}
        save_arrays(self.checkpoint, checkpoint.state, metadata=numbers)

    def load_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint, or None if the run was stopped before its first chunk ended."""
        if not self.checkpoint.is_file():
            return None
        state, numbers = load_arrays(self.checkpoint)
        return Checkpoint(state, int(numbers["done"]), int(numbers["total"]), int(numbers["lines"]))

    def drop_checkpoint(self) -> None:
        self.checkpoint.unlink(missing_ok=True)


def default_directory(config: Path, *, root: Path = Path("runs")) -> RunDirectory:
    """The first free folder among `runs/<name of the config>`, then `-2`, `-3` and so on."""
    return RunDirectory(next(path for path in _candidates(root, config.stem) if not path.exists()))


def _candidates(root: Path, stem: str) -> Iterator[Path]:
    return (root / name for name in chain([stem], (f"{stem}-{number}" for number in count(2))))
