"""Smallest configs of each kind, which the tests then bend."""

from copy import deepcopy
from typing import Any

import pytest

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
}


@pytest.fixture
def config():
    """Makes a fresh copy of the config of a kind, with some top-level tables replaced."""
    return lambda kind, **tables: {**deepcopy(CONFIGS[kind]), **tables}
