"""Which trained encoder, which Gaussian enters it, and how is it measured? The tables of pretrained."""

from typing import Annotated, Literal

from msgspec import Meta

from jaxflow.experiments.schema.base import Count, Positive, Table


class Model(Table, frozen=True, kw_only=True):
    """A Hugging Face folder with config.json and model.safetensors."""

    folder: Annotated[str, Meta(min_length=1)]


class Input(Table, frozen=True, kw_only=True):
    """The Gaussian whose samples enter the first block: with the moments of the model's own embedding, or round."""

    law: Literal["own", "round"] = "own"
    deviation: Positive | None = None


class Prescribed(Table, frozen=True, kw_only=True):
    """V = vP and B = bP in the place of every head, P the projection on the first principal axes of what enters.

    b is set so that `kappa` is b times the largest variance of what enters; its sign is that of `kappa`.
    """

    v: float
    kappa: float
    axes: Count = 2
    feedforward: bool = True


class Measurement(Table, frozen=True, kw_only=True):
    """`repeats` sequences of `tokens` Gaussian tokens, and `nulls` true Gaussian clouds beside every layer."""

    tokens: Count = 1024
    repeats: Annotated[int, Meta(ge=2)] = 8
    nulls: Annotated[int, Meta(ge=19)] = 39
    directions: Count = 120
    pairs: Count = 256
