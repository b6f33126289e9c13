"""Which runner answers which `kind` of config? `prepare` makes the job that the engine then runs."""

from pathlib import Path

from jaxflow.experiments.job import Job
from jaxflow.experiments.schema import (
    Blocks,
    Closure,
    Experiment,
    Limits,
    MeanField,
    Moments,
    Movement,
    Particles,
    Perturbation,
    Phase,
    Pretrained,
    Stability,
    Steer,
    TokenSteer,
    Transport,
)


def prepare(experiment: Experiment, *, folder: Path, precision: str) -> Job:
    """The job of a checked Experiment; nothing is computed or written yet.

    Args:
        experiment: as `load` returns it.
        folder: where the data files lie that it names.
        precision: `float64` or `float32`.

    Raises:
        InputError: the Experiment asks for the impossible, such as a target of another rank.
    """
    # The runners load jax, and only the one that is asked for is needed.
    match experiment:
        case Particles():
            from jaxflow.experiments import particles

            return particles.job(experiment, folder=folder, precision=precision)
        case Moments():
            from jaxflow.experiments import moments

            return moments.job(experiment, folder=folder, precision=precision)
        case Steer():
            from jaxflow.experiments import steer

            return steer.job(experiment, folder=folder, precision=precision)
        case TokenSteer():
            from jaxflow.experiments import steer_tokens

            return steer_tokens.job(experiment, folder=folder, precision=precision)
        case Closure():
            from jaxflow.experiments import closure

            return closure.job(experiment, folder=folder, precision=precision)
        case Blocks():
            from jaxflow.experiments import blocks

            return blocks.job(experiment, folder=folder, precision=precision)
        case Phase():
            from jaxflow.experiments import phase

            return phase.job(experiment, folder=folder, precision=precision)
        case MeanField():
            from jaxflow.experiments import meanfield

            return meanfield.job(experiment, folder=folder, precision=precision)
        case Pretrained():
            from jaxflow.experiments import pretrained

            return pretrained.job(experiment, folder=folder, precision=precision)
        case Transport():
            from jaxflow.experiments import transport

            return transport.job(experiment, folder=folder, precision=precision)
        case Movement():
            from jaxflow.experiments import jko

            return jko.job(experiment, folder=folder, precision=precision)
        case Stability():
            from jaxflow.experiments import stability

            return stability.job(experiment, folder=folder, precision=precision)
        case Perturbation():
            from jaxflow.experiments import perturbation

            return perturbation.job(experiment, folder=folder, precision=precision)
        case Limits():
            from jaxflow.experiments import limits

            return limits.job(experiment, folder=folder, precision=precision)
