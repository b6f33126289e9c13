"""jaxflow: transformers as flows of measures, in JAX.

    import jaxflow as jf

Enter at a flow and a state, and solve:

    jf.particles.AttentionFlow   tokens under attention        acts on a jf.Cloud
    jf.gaussian.MomentFlow       Gaussians under attention     acts on a jf.Gaussian
    jf.control.steer             controls that carry one Gaussian to another
    jf.meanfield.DensityFlow     densities under attention     acts on a jf.meanfield.Density
    jf.solve                     moves any of them; returns a jf.Solution

Rooms, from the ground up (imports only point down this list):

    linalg, errors, runtime      square roots with finite derivatives; what is raised; device, precision, doctor
    geometry                     Sphere, Euclidean
    measures                     Cloud, Gaussian, sampling, Gauss–Hermite nodes
    weights                      Constant, Piecewise, Fourier, OrnsteinUhlenbeck, Relaxing, Oscillating, ... -> Layer
    attention                    the primitive (log m, a): Dense, Chunked; rules: Softmax, L2, Sinkhorn
    solve                        methods, Solution, Status, observables
    particles, gaussian          velocity laws, energy, balance, bounds of the theorems; moments, closed forms
    meanfield                    densities on S¹ and S²: the limit of infinitely many tokens, growth rates
    transport                    Wasserstein distances, weighted by the mobility too, and minimising movements (JKO)
    control                      reachability, constructions, fitting
    pretrained                   trained encoders from a local folder, and how long Gaussian inputs stay Gaussian
    scenarios                    exact answers that `jaxflow verify` recomputes
    io, viz, experiments, cli    run directories, figures, configs, the command line

Importing jaxflow changes no setting of JAX. Ask for float64 yourself: jax.config.update("jax_enable_x64", True).
Names load on first use, so that `import jaxflow` takes milliseconds.
"""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxflow import attention as attention
    from jaxflow import control as control
    from jaxflow import errors as errors
    from jaxflow import gaussian as gaussian
    from jaxflow import geometry as geometry
    from jaxflow import linalg as linalg
    from jaxflow import meanfield as meanfield
    from jaxflow import measures as measures
    from jaxflow import particles as particles
    from jaxflow import pretrained as pretrained
    from jaxflow import runtime as runtime
    from jaxflow import scenarios as scenarios
    from jaxflow import transport as transport
    from jaxflow import viz as viz
    from jaxflow import weights as weights
    from jaxflow.errors import InputError as InputError
    from jaxflow.errors import JaxflowError as JaxflowError
    from jaxflow.errors import NumericalError as NumericalError
    from jaxflow.errors import UnreachableError as UnreachableError
    from jaxflow.geometry import Euclidean as Euclidean
    from jaxflow.geometry import Sphere as Sphere
    from jaxflow.measures import Cloud as Cloud
    from jaxflow.measures import Gaussian as Gaussian
    from jaxflow.solve import RK4 as RK4
    from jaxflow.solve import Dopri8 as Dopri8
    from jaxflow.solve import Euler as Euler
    from jaxflow.solve import Heun as Heun
    from jaxflow.solve import Kvaerno5 as Kvaerno5
    from jaxflow.solve import Observe as Observe
    from jaxflow.solve import Solution as Solution
    from jaxflow.solve import Status as Status
    from jaxflow.solve import Tsit5 as Tsit5
    from jaxflow.solve import solve as solve

ROOMS = (
    "attention", "control", "errors", "gaussian", "geometry", "linalg", "meanfield", "measures", "particles",
    "pretrained", "runtime", "scenarios", "transport", "viz", "weights",
)  # fmt: skip

NAMES = {
    "errors": ("InputError", "JaxflowError", "NumericalError", "UnreachableError"),
    "geometry": ("Euclidean", "Sphere"),
    "measures": ("Cloud", "Gaussian"),
    "solve": ("RK4", "Dopri8", "Euler", "Heun", "Kvaerno5", "Observe", "Solution", "Status", "Tsit5", "solve"),
}

HOME = {name: room for room, names in NAMES.items() for name in names}

__all__ = [*ROOMS, *HOME]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in HOME:
        value = getattr(importlib.import_module(f"jaxflow.{HOME[name]}"), name)
    elif name in ROOMS:
        value = importlib.import_module(f"jaxflow.{name}")
    else:
        raise AttributeError(f"jaxflow has no attribute {name!r}; it has {', '.join(sorted(__all__))}")
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


class _Package(types.ModuleType):
    """Keeps `jf.solve` the function: Python would put the package `jaxflow.solve` in its place on import."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "solve" and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
