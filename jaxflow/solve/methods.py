"""The integration methods, as values.

Fixed steps are explicit Runge–Kutta tableaux run by our own scan; adaptive ones name a diffrax solver.
"""

import abc
from typing import ClassVar, final

import diffrax
import equinox as eqx


class AbstractMethod(eqx.Module):
    """A one-step method for ẏ = f(t, y)."""

    order: ClassVar[int]


class AbstractFixed(AbstractMethod):
    """Explicit Runge–Kutta with a given step: k_i = f(t + c_i h, y + h Σ_j a_ij k_j), y ← y + h Σ_i b_i k_i."""

    a: ClassVar[tuple[tuple[float, ...], ...]]
    b: ClassVar[tuple[float, ...]]
    c: ClassVar[tuple[float, ...]]


@final
class Euler(AbstractFixed):
    """Order 1. On the sphere: step, then renormalise, the scheme of arXiv:2605.18870. The method for random weights."""

    order = 1
    a: ClassVar = ((),)
    b: ClassVar = (1.0,)
    c: ClassVar = (0.0,)


@final
class Heun(AbstractFixed):
    """Order 2 (explicit trapezoidal rule), two evaluations a step."""

    order = 2
    a: ClassVar = ((), (1.0,))
    b: ClassVar = (0.5, 0.5)
    c: ClassVar = (0.0, 1.0)


@final
class RK4(AbstractFixed):
    """Order 4, the classical method, four evaluations a step."""

    order = 4
    a: ClassVar = ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0))
    b: ClassVar = (1 / 6, 1 / 3, 1 / 3, 1 / 6)
    c: ClassVar = (0.0, 0.5, 0.5, 1.0)


class AbstractAdaptive(AbstractMethod):
    """Steps chosen from an error estimate and the tolerances rtol, atol."""

    @abc.abstractmethod
    def solver(self) -> diffrax.AbstractSolver:
        """The diffrax solver behind it."""


@final
class Tsit5(AbstractAdaptive):
    """Order 5 explicit; the default."""

    order = 5

    def solver(self) -> diffrax.AbstractSolver:
        return diffrax.Tsit5()


@final
class Dopri8(AbstractAdaptive):
    """Order 8 explicit; cheapest at tolerances below about 1e-9."""

    order = 8

    def solver(self) -> diffrax.AbstractSolver:
        return diffrax.Dopri8()


@final
class Kvaerno5(AbstractAdaptive):
    """Order 5 implicit, for stiff layers (‖A‖·t1 in the hundreds and decaying)."""

    order = 5

    def solver(self) -> diffrax.AbstractSolver:
        return diffrax.Kvaerno5()
