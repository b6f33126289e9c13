"""What does an absent key mean? Completes a checked Experiment, so that its copy says everything."""

from typing import Any

from msgspec.structs import replace

from jaxflow.experiments.schema import (
    Blocks,
    Closure,
    Control,
    Experiment,
    Limits,
    MeanField,
    Moments,
    Movement,
    Particles,
    Perturbation,
    Phase,
    Pretrained,
    Solve,
    Stability,
    Steer,
    TokenSteer,
    Transport,
)
from jaxflow.experiments.schema.flow import Flow, MomentFlow
from jaxflow.experiments.schema.meanfield import Infinite
from jaxflow.experiments.schema.solve import FIXED
from jaxflow.experiments.schema.weights import Constant, OrnsteinUhlenbeck, Weights, attention_of

SAVES = 200
TOLERANCE = 1e-8
MAX_STEPS = 100_000

# The keys of [control] that each method reads; the others are refused. Absent keys take these values.
# None: read, but absent unless given.
SEARCHED: dict[str, Any] = {"controls": "constant", "segments": 10, "heads": 1, "symmetric_B": False, "bounds": None}
OBJECTIVE: dict[str, Any] = {"loss": "w2", "effort": 1e-2, "smoothness": 0.0, "time_weight": None}
CONTROL_DEFAULTS: dict[str, dict[str, Any]] = {
    "adam": {**SEARCHED, **OBJECTIVE, "iterations": 1000, "learning_rate": 0.05},
    "lbfgs": {**SEARCHED, **OBJECTIVE, "iterations": 300},
    "gauss-newton": {**SEARCHED, "iterations": 100},
    "cheapest": {**SEARCHED, "cost": "effort", "cap": None, "iterations": 150},
    "constructive": {},
}
FREQUENCIES = 3


# The same of steer_tokens; a loss reads keys as well.
TOKEN_DEFAULTS: dict[str, dict[str, float]] = {
    "adam": {"iterations": 500, "learning_rate": 0.05},
    "lbfgs": {"iterations": 200},
    "sinkhorn": {"epsilon": 0.05},
}
STEPS = 20

NEGATIVITY = 1e-3
"""meanfield: how far below 0 a density may dip, in units of its largest value."""


def fill(experiment: Experiment) -> Experiment:
    """The same Experiment with every default written out."""
    match experiment:
        case Particles() | Moments():
            flow = with_direction(experiment.flow, experiment.weights)
            return replace(experiment, flow=flow, solve=with_saves(experiment.solve, experiment.weights, flow))
        case Steer():
            return replace(experiment, control=with_method_defaults(experiment.control))
        case TokenSteer():
            return with_token_defaults(experiment)
        case Closure() | Blocks() | Phase() | Pretrained() | Transport() | Movement():
            return experiment
        case Stability() | Perturbation():
            return replace(experiment, solve=with_saves(experiment.solve, experiment.weights, MomentFlow()))
        case Limits():
            return replace(experiment, solve=with_saves(experiment.solve, roughest(experiment), MomentFlow()))
        case MeanField():
            return with_density_defaults(experiment)


def method_of(solve: Solve, weights: Weights, flow: Flow | MomentFlow) -> str:
    """The method that is meant when none is named."""
    if solve.method is not None:
        return solve.method
    noisy = isinstance(weights, OrnsteinUhlenbeck) and weights.noise_var > 0
    if noisy or (isinstance(flow, Flow) and flow.kappa is not None):
        return "euler"
    return "tsit5" if solve.dt is None else "rk4"


def roughest(experiment: Limits) -> Weights:
    """The weights of a case that decides which methods may follow all of them: noisy ones, if there are any."""
    every = [case.weights for case in experiment.cases]
    return next((w for w in every if isinstance(w, OrnsteinUhlenbeck) and w.noise_var > 0), every[0])


def with_direction(flow: Flow | MomentFlow, weights: Weights) -> Flow | MomentFlow:
    """Tied heads descend unless told otherwise."""
    if flow.direction is None and attention_of(weights) == "tied":
        return replace(flow, direction="descend")
    return flow


def with_saves(solve: Solve, weights: Weights, flow: Flow | MomentFlow) -> Solve:
    """Name the method, its tolerances, and about 200 moments to save."""
    solve = replace(solve, method=method_of(solve, weights, flow))
    chosen = solve.save_every is not None or solve.save_at is not None
    if solve.method in FIXED:
        assert solve.dt is not None  # the checks came before
        steps = round(solve.t1 / solve.dt)
        return solve if chosen else replace(solve, save_every=max(1, round(steps / SAVES)))
    times = [*(solve.t1 * index / SAVES for index in range(SAVES)), solve.t1]
    return replace(
        solve,
        rtol=solve.rtol or TOLERANCE,
        atol=solve.atol or TOLERANCE,
        max_steps=solve.max_steps or MAX_STEPS,
        save_at=solve.save_at if chosen else times,
    )


def with_density_defaults(experiment: MeanField) -> MeanField:
    """Name the law, the direction and the saves; how far below 0 a density may dip."""
    flow, weights = experiment.flow, experiment.weights
    infinite = isinstance(weights, Infinite)
    attention = "tied" if infinite else attention_of(weights)
    law = "unnormalized" if infinite else "softmax"
    flow = replace(
        flow,
        law=law if flow.law is None and attention != "none" else flow.law,
        direction="descend" if flow.direction is None and attention == "tied" else flow.direction,
        negativity=NEGATIVITY if flow.negativity is None else flow.negativity,
    )
    # To a solver infinitely many heads are smooth weights.
    like = Constant() if infinite else weights
    return replace(experiment, flow=flow, solve=with_saves(experiment.solve, like, MomentFlow()))


def with_token_defaults(experiment: TokenSteer) -> TokenSteer:
    """Give the absent keys the values of the method and of the loss, and name the step."""
    control, solve = experiment.control, experiment.solve
    defaults = TOKEN_DEFAULTS[control.method] | TOKEN_DEFAULTS.get(control.loss, {})
    absent = {key: value for key, value in defaults.items() if getattr(control, key) is None}
    return replace(
        experiment,
        control=replace(control, **absent),
        solve=replace(solve, dt=control.t1 / STEPS if solve.dt is None else solve.dt),
    )


def with_method_defaults(control: Control) -> Control:
    """Give the absent keys the values of the method."""
    defaults = dict(CONTROL_DEFAULTS[control.method])
    if "segments" in defaults:
        defaults["segments"] = {"mlp": None, "fourier": FREQUENCIES}.get(control.controls or "", defaults["segments"])
    return replace(control, **{key: value for key, value in defaults.items() if getattr(control, key) is None})
