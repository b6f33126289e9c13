"""Smallest configs of each kind, which the tests then bend."""

from copy import deepcopy
from typing import Any

import pytest

from jaxflow.experiments import prepare
from jaxflow.experiments.load import build

CONFIGS: dict[str, dict[str, Any]] = {
    "particles": {
        "kind": "particles",
        "tokens": {"kind": "octahedral", "n": 8},
        "weights": {"kind": "constant", "D": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]},
        "solve": {"t1": 1.0, "dt": 0.1},
    },
    "moments": {
        "kind": "moments",
        "start": {"covariance": [[1.0, 0.5], [0.5, 1.0]]},
        "weights": {
            "kind": "constant",
            "B": [[1, 0], [0, 1]],
            "V": [[-1, 0], [0, -1]],
            "A": [[0, 1], [-1, 0]],
        },
        "solve": {"t1": 1.0},
    },
    "steer": {
        "kind": "steer",
        "start": {"mean": [0, 0], "covariance": [[1, 0], [0, 1]]},
        "target": {"mean": [1, 0], "factor": [[2, 0], [0, 1]]},
    },
    "steer_tokens": {
        "kind": "steer_tokens",
        "pairs": [
            {
                "start": {"kind": "vmf", "n": 5, "dim": 3, "concentration": 9, "centre": [0, 0, 2]},
                "target": [{"kind": "octahedral", "n": 3}, {"kind": "explicit", "points": [[0, 1, 0], [0, 0.6, 0.8]]}],
            },
            {
                "start": {"kind": "vmf", "n": 5, "dim": 3, "concentration": 9},
                "target": {"kind": "octahedral", "n": 5},
            },
        ],
        "control": {"segments": 2, "loss": "energy", "iterations": 14},
        "solve": {"method": "euler", "dt": 0.5},
    },
    "closure": {
        "kind": "closure",
        "start": {"covariance": [[1.0, 0.3], [0.3, 0.5]]},
        "weights": {"kind": "constant", "B": [[1.0, 0.2], [-0.2, 0.8]], "V": [[0.3, 0], [0, 0.3]]},
        "sweep": {"kappa": [0.3, 2.5], "n": [300], "nodes": [10], "repeats": 4},
        "solve": {"t1": 0.5, "dt": 0.25},
    },
    "blocks": {
        "kind": "blocks",
        "start": {"covariance": [[1.0, 0.3], [0.3, 0.5]]},
        "blocks": {"depth": 12, "step": 0.2, "n": 250},
        "cases": [
            {
                "name": "held",
                "A": [[-0.2, 0], [0, -0.2]],
                "B": [[0.8, 0.1], [0, 0.6]],
                "V": [[-0.5, 0], [0, -0.5]],
                "b": [0.1, 0],
            },
            {"name": "let go", "B": [[0.8, 0.1], [0, 0.6]], "V": [[0.5, 0], [0, 0.5]]},
        ],
    },
    "phase": {
        "kind": "phase",
        "start": {"mean": [1, 0], "covariance": [[1.0, 0.3], [0.3, 0.5]]},
        "weights": {"kind": "constant", "A": [[-0.3, 0.4], [-0.4, -0.3]]},
        "grid": {"v": [-2, 2], "b": [-2, 2], "points": 9},
        "solve": {"t1": 30.0},
    },
    "meanfield": {
        "kind": "meanfield",
        "density": {
            "kind": "mixture",
            "dim": 2,
            "degree": 16,
            "centres": [[1, 1]],
            "concentration": 2,
            "shares": [0.7],
        },
        "weights": {"kind": "constant", "D": [[1.0, 0.2], [0.2, 0.5]]},
        "clouds": {"n": [100, 400], "repeats": 3},
        "solve": {"t1": 0.4, "dt": 0.1, "save_every": 1},
    },
    "transport": {
        "kind": "transport",
        "start": {"kind": "explicit", "points": [[1.0, 0.0]]},
        "target": {"kind": "explicit", "points": [[-0.8, 0.6]]},
        "weights": {"kind": "constant", "D": [[[-0.3, 0], [0, -0.3]], [[-1.1, 0], [0, -1.1]]]},
        "distance": {"steps": 8, "split": 2},
    },
    "jko": {
        "kind": "jko",
        "tokens": {"kind": "explicit", "points": [[0.8, 0.6]]},
        "weights": {"kind": "constant", "D": [[0.9, 0], [0, -0.5]]},
        "scheme": {"tau": [0.02, 0.04, 0.08], "t1": 0.8},
    },
    "stability": {
        "kind": "stability",
        "tokens": {"kind": "explicit", "points": [[0.96, 0.28]]},
        "weights": {"kind": "ou", "noise_var": 0, "D": [[0.2, 0], [0, -0.1]], "mean": [[0.4, 0], [0, -0.3]]},
        "neighbours": {"size": [1e-5, 0.1], "repeats": 2},
        "solve": {"t1": 2.0, "dt": 0.05, "save_every": 5},
    },
    "perturbation": {
        "kind": "perturbation",
        "tokens": {"kind": "explicit", "points": [[0.96, 0.28]]},
        "weights": {"kind": "constant", "D": [[0.9, 0], [0, -0.7]]},
        "perturbation": {"eps": [0.01, 0.03, 0.1], "S": [[0.5, 0], [0, -0.3]]},
        "minimum": {"t1": 30.0},
        "solve": {"t1": 1.0, "dt": 0.05, "save_every": 4},
    },
    "limits": {
        "kind": "limits",
        "tokens": {"kind": "explicit", "points": [[0.96, 0.28]]},
        "cases": [
            {
                "name": "they settle",
                "weights": {"kind": "ou", "noise_var": 0, "D": [[0.5, 0], [0, 1]], "mean": [[1.2, 0], [0, -0.6]]},
            },
            {"name": "never", "weights": {"kind": "oscillating", "D": [[0.5, 0], [0, 1]]}},
        ],
        "solve": {"t1": 12.0, "dt": 0.05, "save_every": 10},
    },
}


@pytest.fixture
def config():
    """Makes a fresh copy of the config of a kind, with some top-level tables replaced."""
    return lambda kind, **tables: {**deepcopy(CONFIGS[kind]), **tables}


@pytest.fixture
def run(config, tmp_path):
    """Runs a config of this kind with some tables changed: its summary and arrays. A table with a `kind` of its own
    takes the place of the old one; equal sizes share programs."""

    def run(kind, **tables):
        base = config(kind)
        whole = {key: new for key, new in tables.items() if not isinstance(new, dict) or "kind" in new}
        changed = {key: {**base.get(key, {}), **new} for key, new in tables.items() if key not in whole} | whole
        job = prepare(build({**base, **changed}, folder=tmp_path), folder=tmp_path, precision="float64")
        state, progress = job.advance(job.begin())
        while progress.done < progress.total:
            state, progress = job.advance(state)
        found = job.finish(state)
        return found.summary, found.arrays

    return run
