"""`kind = "blocks"`: tokens through residual blocks with prescribed weights, block by block, against the moments.

x ← x + η(Ax + b + Σ_h V_h a_h(x)) is a transformer's block with step η, and Euler's method for the flow of tokens.
Beside it: (i) the same block on the Gaussian, L ← (I + ηK)L, exact for infinitely many tokens, and (ii) equation (1.1)
of arXiv:2606.07600, the limit η → 0. All three start from the mean and covariance of the tokens drawn.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from jaxflow.experiments import build
from jaxflow.experiments.checks.regimes import key_of
from jaxflow.experiments.fit import gaussian_of, kappa
from jaxflow.experiments.job import Progress, Run, State
from jaxflow.experiments.moments import regime
from jaxflow.experiments.schema import Blocks
from jaxflow.experiments.tallies import OUTCOMES, each_outcome
from jaxflow.gaussian import MomentFlow
from jaxflow.geometry import Euclidean
from jaxflow.measures import Cloud, sample
from jaxflow.particles import AttentionFlow
from jaxflow.solve import Dopri8, Euler, solve
from jaxflow.solve.solution import ADVICE
from jaxflow.weights import AbstractSchedule, Constant

TOLERANCE = 1e-10
"""Of the continuous equation, so that its own error shows in no figure."""


def job(experiment: Blocks, *, folder: Path, precision: str) -> "BlocksJob":
    """The job of a checked config."""
    start = build.gaussian(experiment.start, where="start", folder=folder, precision=precision)
    key = build.stream(jax.random.key(experiment.seed), "tokens")
    return BlocksJob(experiment, sample(start, key, n=experiment.blocks.n), precision)


@dataclass(frozen=True)
class BlocksJob:
    """The same tokens through the blocks of every case, one case in a chunk."""

    experiment: Blocks
    tokens: Cloud
    precision: str

    @cached_property
    def layers(self) -> list[Constant]:
        """The layer of every case, with zeros where it has no feed-forward part: cases then share a program."""
        d = self.tokens.points.shape[1]

        def array(x: Any) -> Any:
            return None if x is None else np.asarray(x, self.precision)

        return [
            Constant(
                B=array(case.B), V=array(case.V), A=array(case.A or np.zeros((d, d))), b=array(case.b or [0.0] * d)
            )
            for case in self.experiment.cases
        ]

    def describe(self) -> dict[str, str]:
        blocks = self.experiment.blocks
        return {
            "tokens": f"{blocks.n} in dimension {self.tokens.points.shape[1]}",
            "blocks": f"{blocks.depth} of step {blocks.step:g}",
            "cases": ", ".join(case.name for case in self.experiment.cases),
        }

    def begin(self) -> State:
        return {"done": np.array(0)}

    def advance(self, state: State) -> tuple[State, Progress]:
        done, blocks = int(state["done"]), self.experiment.blocks
        found = _measure(self.layers[done], self.tokens, blocks.depth, blocks.step)
        found["end.outcome"] = each_outcome(found.pop("end.status"))[0]
        state = {**state, "done": np.array(done + 1)}
        for name, value in found.items():
            row = np.asarray(value)[None]
            state[name] = np.concatenate([state[name], row]) if name in state else row
        covariance = state["tokens_covariance"][-1, -1]
        metrics = {"trace": float(np.trace(covariance)), "kappa": float(state["tokens_kappa"][-1, -1])}
        return state, Progress(done + 1, len(self.layers), "cases", metrics)

    def finish(self, state: State) -> Run:
        blocks, names = self.experiment.blocks, [case.name for case in self.experiment.cases]
        # A blow-up of the moments is a result of its case; the run is done all the same.
        failures = [int(x) for x in state["end.outcome"] if OUTCOMES[int(x)] in ADVICE]
        outcome = OUTCOMES[max(failures, default=0)]
        summary: dict[str, Any] = {
            "status": outcome,
            "cases": names,
            "depth": blocks.depth,
            "t_final": float(state["ts"][0, -1]),
        }
        beyond, blowups = [], []
        for i, name in enumerate(names):
            found = _case({key: x[i] for key, x in state.items() if key != "done"}, blocks.step)
            summary |= {f"{key_of(name)}_{key}": value for key, value in found.items()}
            blowups.append(np.nan if found["blowup_depth"] is None else found["blowup_depth"])
            if found["beyond_kappa_1_at"] is not None:
                beyond.append(f"{name} from block {found['beyond_kappa_1_at']} on")
        if beyond:
            summary["warning"] = (
                f"kappa_eff exceeds 1: finitely many tokens lag behind the moments: {'; '.join(beyond)}"
            )
        if outcome in ADVICE:
            summary["advice"] = ADVICE[outcome]
        arrays = {name: x for name, x in state.items() if name != "done" and not name.startswith("end.")}
        return Run(summary, {**arrays, "depth": np.arange(blocks.depth + 1), "blowup_depth": np.array(blowups)})


def _case(found: State, step: float) -> dict[str, Any]:
    """What the summary says of one case.

    Errors are of the covariance, relative in the Frobenius norm, after the last block that the compared moments reach,
    and the largest one up to the block at which κ_eff first exceeds 1.
    """
    tokens, blown_up = found["tokens_covariance"], OUTCOMES[int(found["end.outcome"])] == "blow_up"
    beyond = np.flatnonzero(found["tokens_kappa"] > 1)
    within = int(beyond[0]) if beyond.size else len(tokens)
    summary: dict[str, Any] = {
        "regime": regime(found, blown_up=blown_up),
        "trace_final": float(np.trace(tokens[-1])),
        "kappa_final": float(found["tokens_kappa"][-1]),
        "beyond_kappa_1_at": int(beyond[0]) if beyond.size else None,
        "blowup_depth": float(found["end.t"]) / step if blown_up else None,
    }
    for name in ("blocks", "ode"):
        exact, valid = found[f"{name}_covariance"], found[f"{name}_valid"]
        size, last = np.linalg.norm(exact, axis=(1, 2)), int(valid.sum()) - 1
        errors = np.linalg.norm(tokens - exact, axis=(1, 2)) / np.where(size > 0, size, 1)
        summary[f"error_{name}"], summary[f"error_{name}_at"] = float(errors[last]), last
        summary[f"error_{name}_below_kappa_1"] = float(errors[:within][valid[:within]].max(initial=0.0))
    return summary


@eqx.filter_jit
def _measure(weights: AbstractSchedule, cloud: Cloud, depth: int, step: float) -> dict[str, Any]:
    """Means and covariances after every block of the tokens, of the blocks on moments, and of equation (1.1)."""
    t1 = depth * step
    B = weights.at(0.0).B
    start = gaussian_of(cloud)
    blocks = {"t1": t1, "dt": step, "method": Euler(), "save_every": 1}
    precise = {
        "t1": t1,
        "method": Dopri8(),
        "rtol": TOLERANCE,
        "atol": TOLERANCE,
        "save_at": step * np.arange(depth + 1),
    }
    tokens = solve(AttentionFlow(weights, geometry=Euclidean()), cloud, **blocks)
    flow = MomentFlow(weights)
    fitted = jax.vmap(gaussian_of)(tokens.states)
    found: dict[str, Any] = {
        "ts": tokens.ts,
        "tokens_mean": fitted.mean,
        "tokens_covariance": fitted.covariance,
        "tokens_kappa": jax.vmap(lambda L: kappa(L, B))(fitted.factor),
    }
    ode = solve(flow, start, **precise)
    for name, sol in (("blocks", solve(flow, start, **blocks)), ("ode", ode)):
        found |= {
            f"{name}_mean": sol.states.mean,
            f"{name}_covariance": sol.states.covariance,
            f"{name}_kappa": jax.vmap(lambda L: kappa(L, B))(sol.states.factor),
            f"{name}_valid": sol.valid,
        }
    _, terms = flow.field(ode.t_end, ode.final, weights.at(t1))
    return found | {
        "end.t": ode.t_end,
        "end.covariance": ode.final.covariance,
        "end.growth": terms.K @ ode.final.covariance + ode.final.covariance @ terms.K.T,
        "end.status": ode.status,
    }
