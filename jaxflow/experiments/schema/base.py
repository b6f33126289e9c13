"""What do all config tables share? They are frozen, and refuse keys they do not know."""

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Size = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]

Vector = list[float]
Matrix = list[list[float]]
Heads = list[list[list[float]]]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of a config file."""
