"""`kind = "pretrained"`: Gaussian tokens through a trained encoder, layer by layer.

After every block: how far the tokens are from the Gaussian of their own mean and covariance, beside true Gaussians
(`pretrained.measure_layer`); and before every block: which layer (A, B, V, b) of equation (1.1) of arXiv:2606.07600 it
is for them, and where (1.1) says that mean and covariance go (`pretrained.effective_layer`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxflow.errors import InputError
from jaxflow.experiments import build
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.schema import Prescribed, Pretrained
from jaxflow.measures import Gaussian, sample
from jaxflow.pretrained import (
    Block,
    Encoder,
    effective_layer,
    load,
    measure_layer,
    own_gaussian,
    prescribe,
    round_gaussian,
)
from jaxflow.pretrained.departures import NAMES

CLOSE = 1.5
"""Tokens count as close to Gaussian while SW₂ is below so many times that of true Gaussians."""

MISSED = 0.25
"""(1.1) describes a block if it misses at most this share of the way and the tokens before it are close to Gaussian."""

OF_BLOCKS = ("kappa", "tilt", "self_weight", "attention", "gain", "affine", "missed")
"""The numbers of an `EffectiveLayer` that are kept."""


def job(experiment: Pretrained, *, folder: Path, precision: str) -> "PretrainedJob":
    """The job of a checked config.

    Raises:
        InputError: the model's folder is not what its config says; see `pretrained.load`.
    """
    try:
        encoder = load(folder / experiment.model.folder, dtype=jnp.dtype(precision))
    except InputError as error:
        raise error.at("model") from None
    start = _gaussian(experiment, encoder)
    if experiment.prescribed is not None:
        encoder = _with_prescribed(encoder, start, experiment.prescribed)
    return PretrainedJob(experiment, encoder, start, jax.random.key(experiment.seed))


def _gaussian(experiment: Pretrained, encoder: Encoder) -> Gaussian:
    """What enters the first block."""
    table = experiment.input
    return own_gaussian(encoder) if table.law == "own" else round_gaussian(encoder, deviation=table.deviation)


def _with_prescribed(encoder: Encoder, start: Gaussian, table: Prescribed) -> Encoder:
    axes = _axes(start, table)
    P, largest = (axes @ axes.T)[None], jnp.linalg.norm(start.factor, 2) ** 2
    try:
        return prescribe(encoder, table.kappa / largest * P, table.v * P, feedforward=table.feedforward)
    except InputError as error:
        raise error.at("prescribed") from None


def _axes(start: Gaussian, table: Prescribed) -> Any:
    """The first principal axes of what enters, (d, axes)."""
    return jnp.linalg.eigh(start.covariance)[1][:, -min(table.axes, start.dim) :]


@dataclass(frozen=True)
class PretrainedJob:
    """One hidden state in a chunk, and the block that comes after it. Only the tokens of one layer are kept."""

    experiment: Pretrained
    encoder: Encoder
    gaussian: Gaussian
    key: Any

    def describe(self) -> dict[str, str]:
        measure, encoder = self.experiment.measure, self.encoder
        return {
            "model": f"{encoder.kind}, {len(encoder.blocks)} blocks, d = {encoder.dim}",
            "tokens": f"{measure.repeats} sequences of {measure.tokens}",
            "nulls": str(measure.nulls),
        }

    @property
    def described(self) -> bool:
        """Whether the blocks have one B for all tokens."""
        return all(block.attention.exchangeable for block in self.encoder.blocks)

    def begin(self) -> State:
        measure = self.experiment.measure
        tokens = sample(self.gaussian, build.stream(self.key, "tokens"), n=measure.repeats * measure.tokens).points
        return {"done": np.array(0), "x": np.asarray(tokens.reshape(measure.repeats, measure.tokens, -1))}

    def advance(self, state: State) -> tuple[State, Progress]:
        measure, blocks, done = self.experiment.measure, self.encoder.blocks, int(state["done"])
        x = jnp.asarray(state["x"])
        key = jax.random.fold_in(build.stream(self.key, "noise"), done)
        report = _measure(x, key, measure.nulls, measure.directions, measure.pairs)
        found: dict[str, Any] = {f"measured_{name}": getattr(report.measured, name) for name in NAMES}
        found |= {f"null_{name}": getattr(report.null, name) for name in NAMES}
        for name in ("mean", "eigenvalues", "effective_rank"):
            found[name] = getattr(report, name)
        if self.experiment.prescribed is not None:
            axes = _axes(self.gaussian, self.experiment.prescribed)
            found["covariance_on_axes"] = axes.T @ report.covariance @ axes
        if done < len(blocks):
            if self.described:
                effective = _effective(blocks[done], x)
                found |= {name: getattr(effective, name) for name in OF_BLOCKS}
                found["predicted_mean"] = effective.mean
                found["predicted_eigenvalues"] = jnp.linalg.eigvalsh(effective.covariance)[::-1]
            x = _apply(blocks[done], x)
        state = {**state, "done": np.array(done + 1), "x": np.asarray(x)}
        for name, value in found.items():
            row = np.asarray(value)[None]
            state[name] = np.concatenate([state[name], row]) if name in state else row
        sliced = float(report.measured.sliced.mean() / report.null.sliced.mean())
        metrics = {"sliced_over_null": sliced, "trace": float(report.eigenvalues.sum())}
        return state, Progress(done + 1, len(blocks) + 1, "layers", metrics)

    def finish(self, state: State) -> Run:
        arrays = {name: x for name, x in state.items() if name not in ("done", "x")}
        summary: dict[str, Any] = {
            "status": "done",
            "model": self.encoder.kind,
            "blocks": len(self.encoder.blocks),
            "dimension": self.encoder.dim,
        }
        for name in NAMES:
            summary |= _against_null(name, arrays[f"measured_{name}"], arrays[f"null_{name}"])
        ratio = arrays["measured_sliced"].mean(1) / arrays["null_sliced"].mean(1)
        close = ratio < CLOSE
        summary["close_until"] = _first_false(close)
        summary["effective_rank"] = arrays["effective_rank"].tolist()
        summary["trace"] = arrays["eigenvalues"].sum(1).tolist()
        summary["largest"] = arrays["eigenvalues"][:, 0].tolist()
        summary["mean_norm"] = np.linalg.norm(arrays["mean"], axis=1).tolist()
        if self.experiment.prescribed is not None:
            summary |= self._on_axes(arrays["covariance_on_axes"])
        if self.described:
            summary |= {name: arrays[name].tolist() for name in ("attention", "gain", "affine", "missed")}
            summary["predicted_largest"] = arrays["predicted_eigenvalues"][:, 0].tolist()
            summary["predicted_trace"] = arrays["predicted_eigenvalues"].sum(1).tolist()
            summary["kappa_max"] = arrays["kappa"].max(1).tolist()
            summary["tilt_max"] = arrays["tilt"].max(1).tolist()
            summary["self_weight_max"] = arrays["self_weight"].max(1).tolist()
            summary["described"] = (1 + np.flatnonzero((arrays["missed"] <= MISSED) & close[:-1])).tolist()
        else:
            summary["warning"] = "attention depends on positions: no block has one B, and (1.1) is not compared"
        return Run(summary, arrays)

    def _on_axes(self, measured: np.ndarray) -> dict[str, Any]:
        """tr Σ on the axes of the prescribed matrices, and by (1.1) with nothing else: L ← (1 + v b L Lᵀ) L."""
        table = self.experiment.prescribed
        assert table is not None
        summary: dict[str, Any] = {"trace_on_axes": np.trace(measured, axis1=1, axis2=2).tolist()}
        if not table.feedforward:
            vb = table.v * table.kappa / float(jnp.linalg.norm(self.gaussian.factor, 2) ** 2)
            L = [np.linalg.cholesky(measured[0])]
            for _ in self.encoder.blocks:
                L.append(L[-1] + vb * L[-1] @ L[-1].T @ L[-1])
            summary["trace_on_axes_by_moments"] = [float(np.sum(x**2)) for x in L]
        return summary


def _against_null(name: str, measured: np.ndarray, null: np.ndarray) -> dict[str, Any]:
    """Means over the sequences with their standard errors, the central 95 % of the nulls, and how long they agree."""
    low, high = np.quantile(null, [0.025, 0.975], axis=1)
    mean = measured.mean(1)
    return {
        name: mean.tolist(),
        f"{name}_error": (measured.std(1, ddof=1) / np.sqrt(measured.shape[1])).tolist(),
        f"{name}_null": null.mean(1).tolist(),
        f"{name}_null_low": low.tolist(),
        f"{name}_null_high": high.tolist(),
        f"{name}_in_band_until": _first_false((mean >= low) & (mean <= high)),
    }


def _first_false(good: np.ndarray) -> int | None:
    """The last layer before which, itself included, all are good; 0 is what enters; None if not even that."""
    bad = np.flatnonzero(~good)
    last = int(bad[0]) - 1 if bad.size else len(good) - 1
    return last if last >= 0 else None


@eqx.filter_jit
def _measure(x: Any, key: Any, nulls: int, directions: int, pairs: int) -> Any:
    return measure_layer(x, key, nulls=nulls, directions=directions, pairs=pairs)


@eqx.filter_jit
def _effective(block: Block, x: Any) -> Any:
    return effective_layer(block, x)


@eqx.filter_jit
def _apply(block: Block, x: Any) -> Any:
    return jax.lax.map(block, x)
