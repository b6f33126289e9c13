"""Which data files does an Experiment name, and what do they hold?"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from jaxflow.errors import InputError
from jaxflow.experiments.schema import (
    Blocks,
    Closure,
    Experiment,
    Gaussian,
    Limits,
    Moments,
    Movement,
    Particles,
    Perturbation,
    Phase,
    Pretrained,
    Stability,
    Steer,
    TokenSteer,
    Transport,
)
from jaxflow.experiments.schema.steer_tokens import Clouds
from jaxflow.experiments.schema.tokens import Explicit
from jaxflow.io.tables import read_table


@dataclass(frozen=True)
class GaussianData:
    """A Gaussian in numbers: its mean (d,), and either its covariance (d, d) or a factor (d, r) of it."""

    mean: np.ndarray
    covariance: np.ndarray | None
    factor: np.ndarray | None


def read_samples(name: str, *, where: str, folder: Path, precision: str) -> np.ndarray:
    """The table in the file `name`, relative to `folder`; mistakes are reported at `where`."""
    try:
        return read_table(folder / name, precision=precision)
    except InputError as error:
        raise InputError(
            f"{error.where}: {error.what}", where=where, got=error.got, expected=error.expected, fix=error.fix
        ) from None


def gaussian_data(gaussian: Gaussian, *, where: str, folder: Path, precision: str) -> GaussianData:
    """The numbers of a checked Gaussian table; samples give their own mean and covariance."""
    if gaussian.samples is not None:
        samples = read_samples(gaussian.samples, where=f"{where}.samples", folder=folder, precision=precision)
        mean = samples.mean(axis=0)
        # Divided by n, not n − 1: the samples are the measure itself.
        covariance = (samples - mean).T @ (samples - mean) / samples.shape[0]
        return GaussianData(mean, covariance, None)
    covariance, factor = (
        None if rows is None else np.asarray(rows, precision) for rows in (gaussian.covariance, gaussian.factor)
    )
    d = len(gaussian.covariance or gaussian.factor or [])
    mean = np.zeros(d, precision) if gaussian.mean is None else np.asarray(gaussian.mean, precision)
    return GaussianData(mean, covariance, factor)


def explicit_points(tokens: Explicit, *, folder: Path, precision: str) -> np.ndarray:
    """The points (n, d) of a checked `explicit` table."""
    if isinstance(tokens.points, str):
        return read_samples(tokens.points, where="tokens.points", folder=folder, precision=precision)
    return np.asarray(tokens.points, precision)


def localised(experiment: Experiment, *, folder: Path) -> tuple[Experiment, dict[str, Path]]:
    """The Experiment with its data files beside its config, and which file to copy under which name.

    A file keeps its base name; should two different files share one, the later is named after its table.
    """
    files: dict[str, Path] = {}

    def local(table: str, name: str) -> str:
        source = (folder / name).resolve()
        base = source.name if files.get(source.name, source) == source else f"{table}-{source.name}"
        files[base] = source
        return base

    def gaussian(table: str, value: Gaussian) -> Gaussian:
        return value if value.samples is None else replace(value, samples=local(table, value.samples))

    def clouds(table: str, value: Clouds) -> Clouds:
        match value:
            case list():
                return [clouds(f"{table}-{i}", part) for i, part in enumerate(value)]  # pyright: ignore[reportReturnType]
            case Explicit(points=str(name)):
                return replace(value, points=local(table, name))
            case Gaussian():
                return gaussian(table, value)  # pyright: ignore[reportReturnType]
        return value

    match experiment:
        case Particles() | Movement() | Stability() | Perturbation() | Limits():
            experiment = replace(experiment, tokens=clouds("tokens", experiment.tokens))
        case Transport():
            start = clouds("start", experiment.start)
            experiment = replace(experiment, start=start, target=clouds("target", experiment.target))
        case Moments() | Closure() | Blocks() | Phase():
            experiment = replace(experiment, start=gaussian("start", experiment.start))
        case Pretrained(model=model):
            # Trained weights are large: they stay where they are, and are named by their whole path.
            model = replace(model, folder=str((folder / model.folder).resolve()))
            experiment = replace(experiment, model=model)
        case Steer():
            start = gaussian("start", experiment.start)
            experiment = replace(experiment, start=start, target=gaussian("target", experiment.target))
        case TokenSteer():
            pairs = [
                replace(pair, start=clouds(f"start{p}", pair.start), target=clouds(f"target{p}", pair.target))
                for p, pair in enumerate(experiment.pairs)
            ]
            experiment = replace(experiment, pairs=pairs)
        case _:
            pass
    return experiment, files
