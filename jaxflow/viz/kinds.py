"""Which figures does a run have? One function from its kind and arrays to named figures."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from jaxflow.viz.animate import FuncAnimation, animate_steering
from jaxflow.viz.balance import balance
from jaxflow.viz.blocks import blocks
from jaxflow.viz.closure import closure
from jaxflow.viz.density import meanfield
from jaxflow.viz.energy import dissipation
from jaxflow.viz.jko import jko
from jaxflow.viz.limits import limits
from jaxflow.viz.moments import moments
from jaxflow.viz.perturbation import perturbation
from jaxflow.viz.phase import phase
from jaxflow.viz.pretrained import pretrained
from jaxflow.viz.snapshots import snapshots
from jaxflow.viz.stability import stability
from jaxflow.viz.steering import steering
from jaxflow.viz.style import STYLE
from jaxflow.viz.sweep import sweep
from jaxflow.viz.token_steering import token_steering
from jaxflow.viz.transport import transport


def figures(kind: str, arrays: dict[str, np.ndarray], summary: dict[str, Any], config: Any) -> dict[str, Figure]:
    """The figures of a run of this kind, by the names of their files.

    Args:
        kind: "particles" (`snapshots`, and with an energy balance `dissipation` and `balance`; over several numbers of
            heads `snapshots_h…` and `balance_h…` for each, `dissipation`, `exponent` and `balances`),
            "meanfield" (`densities`, `resolution`, with clouds `clouds`, with an energy `dissipation` and `balance`),
            "moments" (`moments`), "steer" (`steering`), "steer_tokens" (`token_steering`), "closure", "blocks",
            "phase", "pretrained", "transport", "jko", "stability", "perturbation" or "limits" (one of that name).
        arrays: the arrays of the run. summary: its summary. config: its config, for geometry and tolerance.
    """
    with mpl.rc_context(STYLE):
        match kind:
            case "particles":
                if "heads" in arrays:
                    return sweep(arrays, summary, geometry=config.flow.geometry)
                ts = arrays["ts"]
                drawn = {"snapshots": snapshots(ts, arrays["points"], geometry=config.flow.geometry)}
                if "energy" in arrays:
                    drawn |= {"dissipation": dissipation(ts, arrays), "balance": balance(ts, arrays)}
                return drawn
            case "moments":
                return {"moments": moments(arrays, summary)}
            case "steer":
                return {"steering": steering(arrays, summary, config)}
            case "steer_tokens":
                return {"token_steering": token_steering(arrays, summary, config)}
            case "closure":
                return {"closure": closure(arrays)}
            case "blocks":
                return {"blocks": blocks(arrays, summary)}
            case "phase":
                return {"phase": phase(arrays, summary)}
            case "meanfield":
                drawn = meanfield(arrays, summary)
                if "energy" in arrays:
                    ts = arrays["ts"]
                    drawn |= {"dissipation": dissipation(ts, arrays), "balance": balance(ts, arrays)}
                return drawn
            case "pretrained":
                return {"pretrained": pretrained(arrays, summary, config)}
            case "transport":
                return {"transport": transport(arrays, summary)}
            case "jko":
                return {"jko": jko(arrays, summary)}
            case "stability":
                return {"stability": stability(arrays, summary)}
            case "perturbation":
                return {"perturbation": perturbation(arrays, summary)}
            case "limits":
                return {"limits": limits(arrays, summary)}
            case _:
                kinds = (
                    "particles, moments, steer, steer_tokens, closure, blocks, phase, meanfield, pretrained, transport,"
                    " jko, stability, perturbation or limits"
                )
                raise ValueError(f"no figures for runs of kind {kind!r}: expected {kinds}")


def animations(kind: str, arrays: dict[str, np.ndarray]) -> dict[str, FuncAnimation]:
    """The moving pictures of a run of this kind, by the names of their files: "steer" in two or more dimensions has
    one, `steering`, and the other kinds have none."""
    if kind != "steer" or arrays["mean"].shape[1] < 2:
        return {}
    names = ("ts", "mean", "covariance")
    options = ("target_mean", "target_covariance", "tokens", "tokens_ts", "target_samples")
    found = {name: arrays.get(name) for name in options}
    return {"steering": animate_steering(*(arrays[name] for name in names), **found)}
