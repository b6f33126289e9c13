"""Is an option given where it does nothing? Such an option is refused, never ignored."""

from collections.abc import Iterable

from jaxflow.errors import InputError
from jaxflow.experiments.paths import short
from jaxflow.experiments.schema.base import Table


def refuse_given(table: Table, keys: Iterable[str], where: str, why: str) -> None:
    """Raise if one of `keys` is given in `table`; `why` completes "does not apply: …"."""
    for key in keys:
        value = getattr(table, key)
        if value is not None:
            raise InputError(
                f"an option that does not apply: {why}",
                where=f"{where}.{key}",
                got=short(value),
                expected="no such key here",
                fix=f"remove {where}.{key}",
            )
