"""Trained weights, where they are: in the folder that JAXFLOW_WEIGHTS names, or in .weights of the checkout."""

import os
import warnings
from pathlib import Path

import pytest

WEIGHTS = Path(os.environ.get("JAXFLOW_WEIGHTS", Path(__file__).parents[2] / ".weights"))


@pytest.fixture(scope="session")
def weights():
    """The folder of a fetched model by its name, or a skip that says how to get it."""

    def find(name):
        if not (WEIGHTS / name / "config.json").is_file():
            pytest.skip(f"no trained weights in {WEIGHTS}: python -m jaxflow.pretrained.fetch {WEIGHTS}")
        return WEIGHTS / name

    return find


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[test]'")


@pytest.fixture(scope="session")
def transformers(torch):
    with warnings.catch_warnings():
        # Loading the file of a model loads parts of PyTorch that are deprecated.
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[test]'")
        for name in ("BertModel", "ModernBertModel", "ViTModel", "DeiTModel", "Dinov2Model"):
            getattr(transformers, name)
    return transformers
