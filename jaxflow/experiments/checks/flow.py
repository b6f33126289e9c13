"""Does the law fit the heads? Signs and gradient flows belong to tied heads, laws to attention."""

from jaxflow.errors import InputError
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.schema.flow import Flow, MomentFlow
from jaxflow.experiments.schema.weights import Weights, attention_of

WITHOUT = {"free": "free heads B, V carry their own sign", "none": "the weights have no heads"}


def check_direction(flow: Flow | MomentFlow, weights: Weights) -> None:
    """Refuse a direction unless the heads are tied."""
    attention = attention_of(weights)
    if attention != "tied":
        refuse_given(flow, ("direction",), "flow", WITHOUT[attention])


def check_flow(flow: Flow, weights: Weights) -> None:
    """Check `[flow]` of a cloud of tokens against the heads."""
    check_direction(flow, weights)
    attention = attention_of(weights)
    if flow.law == "steepest" and attention != "tied":
        raise InputError(
            f"the steepest law descends the energy of tied heads, and {WITHOUT[attention]}",
            where="flow.law",
            got=flow.law,
            expected="softmax or unnormalized, or tied heads `D`",
        )
    if attention == "none":
        unused = {"law": "softmax", "causal": False, "kernel": "auto"}
        for key, default in unused.items():
            if getattr(flow, key) != default:
                raise InputError(
                    "an option that does not apply: the weights have no heads",
                    where=f"flow.{key}",
                    got=getattr(flow, key),
                    expected="no such key here",
                    fix=f"remove flow.{key}",
                )
