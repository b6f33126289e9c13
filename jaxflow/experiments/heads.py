"""How may heads be written? As a list of matrices, or as one matrix, which then is a list of one."""

from typing import Any

from jaxflow.experiments.paths import Parts, value_at

KEYS = ("D", "B", "V", "S")


class SingleHead(list[Any]):
    """A list of one head that the file gives without the list; a message must not show its index."""


def with_lists_of_heads(data: dict[str, Any]) -> dict[str, Any]:
    """The config `data` with a single matrix in place of heads put into a list."""
    data = _weights_listed(_each_listed(data, "cases"))
    cases = data.get("cases")
    if isinstance(cases, list):
        data = {**data, "cases": [_weights_listed(case) if isinstance(case, dict) else case for case in cases]}
    perturbed = data.get("perturbation")
    return {**data, "perturbation": _listed(perturbed)} if isinstance(perturbed, dict) else data


def as_written(parts: Parts, data: Any) -> Parts:
    """The place `parts` of the completed config, as it is called in the file."""
    written = []
    for part in parts:
        if not isinstance(data, SingleHead):
            written.append(part)
        data = value_at(data, (part,))
    return tuple(written)


def _weights_listed(table: dict[str, Any]) -> dict[str, Any]:
    weights = table.get("weights")
    if not isinstance(weights, dict):
        return table
    return {**table, "weights": _each_listed(_listed(weights), "segments")}


def _each_listed(table: dict[str, Any], key: str) -> dict[str, Any]:
    items = table.get(key)
    if not isinstance(items, list):
        return table
    return {**table, key: [_listed(item) if isinstance(item, dict) else item for item in items]}


def _listed(table: dict[str, Any]) -> dict[str, Any]:
    return {key: SingleHead([value]) if key in KEYS and _is_matrix(value) else value for key, value in table.items()}


def _is_matrix(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(row, list) and not any(isinstance(cell, list) for cell in row) for row in value)
