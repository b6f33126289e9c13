# pyright: reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false
"""A diffrax solver that puts the state back on its space after every step."""

from typing import Any, final

import diffrax


@final
class Retracted(diffrax.AbstractAdaptiveSolver, diffrax.AbstractWrappedSolver):
    """A diffrax solver whose every step ends with a retraction. Keeps the order, for vector fields that are smooth
    near the space and tangent on it."""

    solver: diffrax.AbstractSolver
    retract: Any

    @property
    def term_structure(self) -> Any:
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self) -> Any:
        return self.solver.term_compatible_contr_kwargs

    @property
    def root_finder(self) -> Any:
        """Of an implicit solver: diffrax sets its tolerances through the wrapper."""
        return self.solver.root_finder  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def scan_kind(self) -> Any:
        """Of a Runge–Kutta solver: diffrax sets it through the wrapper for forward and direct derivatives."""
        return self.solver.scan_kind  # pyright: ignore[reportAttributeAccessIssue]

    def order(self, terms: Any) -> int | None:
        return self.solver.order(terms)

    def strong_order(self, terms: Any) -> Any:
        return self.solver.strong_order(terms)

    def error_order(self, terms: Any) -> Any:
        return self.solver.error_order(terms)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        return self.solver.init(terms, t0, t1, y0, args)

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any) -> Any:
        (y, integrals), error, dense, state, result = self.solver.step(terms, t0, t1, y0, args, solver_state, made_jump)
        return (self.retract(y), integrals), error, dense, state, result

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args)
