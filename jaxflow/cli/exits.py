"""How does a command end? 0 done, 2 bad config or arguments, 3 numerical failure, 130 Ctrl-C, 1 a bug."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from jaxflow.errors import InputError, NumericalError

BAD_INPUT = 2
FAILED = 3
INTERRUPTED = 130


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn the errors a user can cause into a message and an exit code; a bug keeps its traceback."""
    try:
        yield
    except InputError as error:
        raise stop(str(error), BAD_INPUT) from None
    except NumericalError as error:
        raise stop(str(error), FAILED) from None
    except KeyboardInterrupt:
        raise stop("interrupted", INTERRUPTED) from None


def stop(message: str, code: int) -> typer.Exit:
    """Print `message` on standard error; raise what this returns to leave with `code`."""
    print(f"jaxflow: {message}", file=sys.stderr)
    return typer.Exit(code)
