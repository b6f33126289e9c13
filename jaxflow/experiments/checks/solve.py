"""Can the flow be integrated as asked? Steps, tolerances and saves that belong together."""

from itertools import pairwise

from jaxflow.errors import InputError
from jaxflow.experiments.checks.options import refuse_given
from jaxflow.experiments.defaults import method_of
from jaxflow.experiments.schema.flow import Flow, MomentFlow
from jaxflow.experiments.schema.solve import FIXED, Solve
from jaxflow.experiments.schema.weights import OrnsteinUhlenbeck, Piecewise, Weights

# Durations are sums of decimal fractions, which rounding may leave just short of t1.
ROUNDING = 1e-9


def check_solve(solve: Solve, weights: Weights, flow: Flow | MomentFlow) -> None:
    """Check `[solve]`, that its method can follow this flow, and that the weights last as long as the run."""
    method = method_of(solve, weights, flow)
    if isinstance(weights, OrnsteinUhlenbeck) and weights.noise_var > 0 and method != "euler":
        raise InputError(
            "Ornstein–Uhlenbeck weights are a diffusion path, too rough for a higher-order method",
            where="solve.method",
            got=method,
            expected="euler",
        )
    if isinstance(flow, Flow):
        _check_tokens_method(flow, method)
    if method in FIXED:
        _check_fixed(solve, method)
    else:
        refuse_given(solve, ("dt", "save_every"), "solve", f"{method} chooses its own steps")
    if solve.save_every is not None and solve.save_at is not None:
        raise InputError(
            "two ways to choose the saves",
            where="solve.save_every",
            got="save_every and save_at",
            expected="only one of them",
        )
    if solve.save_at is not None:
        _check_times(solve.save_at, solve.t1)
    if isinstance(weights, Piecewise):
        _check_duration(weights, solve.t1)


def _check_tokens_method(flow: Flow, method: str) -> None:
    if flow.kappa is not None and method != "euler":
        raise InputError(
            "noisy tokens are diffusion paths, too rough for a higher-order method",
            where="solve.method",
            got=method,
            expected="euler",
            fix="or remove flow.kappa",
        )
    if flow.law == "hardmax" and method not in FIXED:
        raise InputError(
            "the velocity of the hardmax law jumps, and no step meets a tolerance across a jump",
            where="solve.method",
            got=method,
            expected=f"{', '.join(FIXED)}, with solve.dt",
        )


def _check_fixed(solve: Solve, method: str) -> None:
    refuse_given(solve, ("rtol", "atol", "max_steps"), "solve", f"{method} takes fixed steps dt")
    if solve.dt is None:
        raise InputError(
            f"{method} takes fixed steps and needs their length",
            where="solve.dt",
            got="nothing",
            expected="a number in (0, t1]",
        )
    if solve.dt > solve.t1:
        raise InputError(
            "the step is longer than the run",
            where="solve.dt",
            got=solve.dt,
            expected=f"at most solve.t1 = {solve.t1}",
        )


def _check_times(times: list[float], t1: float) -> None:
    ordered = all(earlier < later for earlier, later in pairwise(times))
    if not times or not ordered or times[0] < 0 or times[-1] > t1:
        raise InputError(
            "these are no times of the run",
            where="solve.save_at",
            got=times if len(times) <= 8 else f"{len(times)} times from {min(times)} to {max(times)}",
            expected=f"increasing times in [0, {t1}]",
        )


def _check_duration(weights: Piecewise, t1: float) -> None:
    total = sum(segment.duration for segment in weights.segments)
    if total < t1 * (1 - ROUNDING):
        raise InputError(
            "the segments end before the run does",
            where="weights.segments",
            got=f"durations that sum to {total:.6g}",
            expected=f"at least solve.t1 = {t1}",
        )
