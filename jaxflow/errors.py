"""What jaxflow raises, and the five parts every message has.

what went wrong, where, what it got, what it expected, and what to do about it.
This file imports nothing, so that the command line can use it without loading jax.
"""


class JaxflowError(Exception):
    """Base of every error that jaxflow raises on purpose."""


class InputError(JaxflowError, ValueError):
    """An argument, a config or a data file is wrong. Raised before any computation starts.

    Args:
        what: one sentence that says what is wrong.
        where: the argument or config path at fault, such as `start.covariance`.
        got: the value (or its shape, or its smallest eigenvalue) that was found.
        expected: what would have been right.
        fix: what to do.
    """

    def __init__(self, what: str, *, where: str = "", got: object = "", expected: str = "", fix: str = "") -> None:
        self.what, self.where, self.got, self.expected, self.fix = what, where, got, expected, fix
        super().__init__(self._message())

    def _message(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        parts = [("got", self.got), ("expected", self.expected), ("fix", self.fix)]
        return "\n".join([head, *(f"  {name}: {text}" for name, text in parts if str(text) != "")])

    def at(self, where: str) -> "InputError":
        """The same error seen from further out: `at("start")` turns `mean` into `start.mean`."""
        path = f"{where}.{self.where}" if self.where else where
        return type(self)(self.what, where=path, got=self.got, expected=self.expected, fix=self.fix)


class UnreachableError(InputError):
    """No control whatever steers this start to this target; the message names the invariant."""


class NumericalError(JaxflowError, ArithmeticError):
    """A computation ran and failed: not finite, out of steps. Carries the status and advice."""

    def __init__(self, what: str, *, status: str, advice: str = "") -> None:
        self.status, self.advice = status, advice
        super().__init__(f"{what} (status: {status})" + (f"\n  fix: {advice}" if advice else ""))
