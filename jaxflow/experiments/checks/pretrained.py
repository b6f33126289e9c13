"""Is a run of pretrained well asked? The model is there, and its tokens have a covariance."""

import json
from pathlib import Path

from jaxflow.errors import InputError
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.schema import Pretrained


def check_pretrained(experiment: Pretrained, *, folder: Path, precision: str) -> None:
    """Check `[model]`, `[input]` and `[measure]`. What the model's files hold is checked when they are loaded."""
    if experiment.input.law == "own":
        refuse_given(experiment.input, ("deviation",), "input", 'the model gives the deviations; or take law = "round"')
    if precision != "float64":
        raise InputError(
            "covariances close to singular need more digits", where="--precision", got=precision, expected="float64"
        )
    path = folder / experiment.model.folder / "config.json"
    if not path.is_file():
        raise InputError(
            "there is no such model",
            where="model.folder",
            got=experiment.model.folder,
            expected="a folder with config.json and model.safetensors, relative to that of the config file",
            fix="python -m jaxflow.pretrained.fetch .weights makes .weights/minilm and .weights/dinov2",
        )
    try:
        d = json.loads(path.read_text(encoding="utf-8")).get("hidden_size")
    except (UnicodeDecodeError, json.JSONDecodeError, AttributeError):
        return
    if isinstance(d, int) and experiment.measure.tokens <= d:
        raise InputError(
            "so few tokens have no covariance",
            where="measure.tokens",
            got=experiment.measure.tokens,
            expected=f"more than d = {d}",
        )
