"""Do the weights make layers? One family of heads, the right shapes, symmetric where tied."""

from jaxflow.errors import InputError
from jaxflow.experiments.checks import shapes
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.schema.base import Heads
from jaxflow.experiments.schema.regimes import Case
from jaxflow.experiments.schema.weights import (
    Constant,
    OrnsteinUhlenbeck,
    Oscillating,
    Piecewise,
    Segment,
    Weights,
    head_counts,
)

Layer = Constant | Segment | OrnsteinUhlenbeck | Oscillating | Case
KEYS = ("D", "B", "V", "A", "b")


def check_weights(weights: Weights, d: int, source: str) -> None:
    """Check `[weights]` against the dimension d, which `source` sets."""
    if isinstance(weights, Piecewise):
        for index, segment in enumerate(weights.segments):
            where = f"weights.segments[{index}]"
            check_layer(segment, where, d, source)
            _check_same_form(weights.segments[0], segment, where)
        return
    check_layer(weights, "weights", d, source)
    if isinstance(weights, OrnsteinUhlenbeck | Oscillating) and weights.D is None and weights.heads is None:
        raise InputError(
            "there are no heads to start from",
            where="weights",
            expected="`D`, the initial heads, or `heads`, how many to draw at random",
        )
    counts = head_counts(weights)
    if counts is not None and counts != sorted(set(counts)):
        raise InputError("must increase", where="weights.heads", got=counts, expected="increasing whole numbers")
    if isinstance(weights, OrnsteinUhlenbeck) and weights.mean is not None:
        mean = shapes.square(weights.mean, "weights.mean", d, source)
        shapes.symmetric(mean, "weights.mean", "the heads stay symmetric only around a symmetric mean")


def check_single_run(weights: Weights) -> None:
    """Refuse a list of numbers of heads."""
    counts = head_counts(weights)
    if counts is not None:
        raise InputError(
            "several numbers of heads are several runs, which only particles make",
            where="weights.heads",
            got=counts,
            expected="one whole number",
        )


def check_layer(layer: Layer, where: str, d: int, source: str) -> None:
    """Check the layer of the table called `where` against the dimension d, which `source` sets."""
    drawn = None if isinstance(layer, Segment | Case) else layer.heads
    if drawn is not None:
        given = [key for key in ("D", "B", "V") if key in _given(layer)]
        refuse_given(layer, given, where, f"`heads` = {drawn} draws tied heads at random")
    if not isinstance(layer, Case) and layer.D is not None:
        _check_tied(layer.D, f"{where}.D", d, source)
    if isinstance(layer, Constant | Segment | Case):
        _check_free(layer, where, d, source)
        if not _given(layer) and drawn is None:
            heads = "`B` and `V`" if isinstance(layer, Case) else "heads (`D`, or `B` and `V`)"
            raise InputError("this layer does nothing", where=where, expected=f"{heads}, `A` or `b`")
    if layer.A is not None:
        shapes.square(layer.A, f"{where}.A", d, source)
    if layer.b is not None:
        shapes.vector(layer.b, f"{where}.b", d, source)


def _check_tied(D: Heads, where: str, d: int, source: str) -> None:
    fix = "a tied head needs a symmetric D; use `B` and `V` for general heads"
    for array, name in zip(shapes.heads(D, where, d, source), shapes.head_names(where, len(D))):
        shapes.symmetric(array, name, fix)


def _check_free(layer: Constant | Segment | Case, where: str, d: int, source: str) -> None:
    B, V = layer.B, layer.V
    if not isinstance(layer, Case) and layer.D is not None:
        refuse_given(layer, ("B", "V"), where, "the heads are tied, given by `D`")
    if B is None and V is None:
        return
    if B is None or V is None:
        missing, present = ("B", "V") if B is None else ("V", "B")
        raise InputError(
            "free heads need both matrices",
            where=f"{where}.{missing}",
            got=f"only {present}",
            expected="`B` and `V`",
            fix="add the missing one, or use `D` for tied heads",
        )
    shapes.heads(B, f"{where}.B", d, source)
    shapes.heads(V, f"{where}.V", d, source)
    if len(B) != len(V):
        raise InputError(
            "not the same number of heads", where=f"{where}.V", got=len(V), expected=f"{len(B)}, as in `B`"
        )


def _given(layer: Layer) -> list[str]:
    return [key for key in KEYS if getattr(layer, key, None) is not None]


def _check_same_form(first: Segment, segment: Segment, where: str) -> None:
    if _given(first) != _given(segment):
        raise InputError(
            "all segments must have the same keys",
            where=where,
            got=", ".join(_given(segment)),
            expected=", ".join(_given(first)) + ", as in the first segment",
            fix="write zeros where a matrix does nothing",
        )
    for key in ("D", "B"):
        counts = [len(getattr(layer, key) or []) for layer in (first, segment)]
        if counts[0] != counts[1]:
            raise InputError(
                "all segments must have the same number of heads",
                where=f"{where}.{key}",
                got=counts[1],
                expected=f"{counts[0]}, as in the first segment",
            )
