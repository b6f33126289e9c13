"""Does the law fit the heads? Signs and gradient flows belong to tied heads, laws to attention."""

from jaxflow.errors import InputError
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.schema.flow import Flow, MomentFlow
from jaxflow.experiments.schema.weights import Piecewise, Weights, attention_of

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
            expected="softmax, unnormalized or hardmax, or tied heads `D`",
        )
    _check_normalization(flow, weights)
    if flow.kernel in ("dense", "chunked"):
        refuse_given(flow, ("kernel_tolerance",), "flow", f"the kernel {flow.kernel} is exact")
    if attention == "none":
        unused = {"law": "softmax", "causal": False, "kernel": "auto", "kernel_tolerance": None}
        for key, default in unused.items():
            if getattr(flow, key) != default:
                raise InputError(
                    "an option that does not apply: the weights have no heads",
                    where=f"flow.{key}",
                    got=getattr(flow, key),
                    expected="no such key here",
                    fix=f"remove flow.{key}",
                )


def _check_normalization(flow: Flow, weights: Weights) -> None:
    placement = flow.normalization
    if placement is None:
        return
    geometry = "sphere" if placement == "post" else "euclidean"
    if flow.geometry != geometry:
        raise InputError(
            "keeps tokens on the sphere" if placement == "post" else "lets tokens leave the sphere",
            where="flow.normalization",
            got=f"{placement} with {flow.geometry} geometry",
            expected=f'flow.geometry = "{geometry}"',
        )
    if placement != "post" and flow.law == "steepest":
        raise InputError(
            "the steepest law descends an energy of tokens that are not normalised",
            where="flow.law",
            got=f"{flow.law} with normalization = {placement}",
            expected="softmax, unnormalized or hardmax",
        )
    layers = weights.segments if isinstance(weights, Piecewise) else [weights]
    feeds = any(layer.A is not None or layer.b is not None for layer in layers)
    if placement == "peri" and (feeds or attention_of(weights) == "none"):
        raise InputError(
            "peri divides attention by its own norm, and has no rule for feed-forward",
            where="flow.normalization",
            got="peri with `A` or `b`",
            expected="heads alone",
            fix='remove A and b, or take "pre"',
        )
