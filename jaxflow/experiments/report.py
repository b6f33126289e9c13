"""What does the user see of a run? A bar on a terminal, a line per chunk elsewhere, then the results."""

import sys
import time
from typing import Any, Protocol, runtime_checkable

from jaxflow.experiments.job import Progress, Run
from jaxflow.io.jsonfile import plain
from jaxflow.io.rundir import RunDirectory


@runtime_checkable
class Reporter(Protocol):
    """Told about a run by the engine."""

    def advanced(self, progress: Progress) -> None:
        """A chunk has ended."""
        ...

    def close(self) -> None:
        """No further chunk comes."""
        ...

    def finished(self, run: Run, run_dir: RunDirectory, figures: list[str]) -> None:
        """All files are written."""
        ...


def reporter(*, quiet: bool) -> Reporter:
    """The reporter that suits the standard error stream."""
    if quiet:
        return Quiet()
    return Bar() if sys.stderr.isatty() else Lines()


class Quiet:
    """Says where the run lies, and no more."""

    def advanced(self, progress: Progress) -> None:
        pass

    def close(self) -> None:
        pass

    def finished(self, run: Run, run_dir: RunDirectory, figures: list[str]) -> None:
        print(run_dir.path)


class Lines:
    """One plain line per chunk on standard error, and the results on standard output."""

    def __init__(self) -> None:
        self.pace = Pace()

    def advanced(self, progress: Progress) -> None:
        counted = f"{progress.unit} {progress.done}/{progress.total}"
        print(
            "  ".join([counted, *self.pace.words(progress), *metric_words(progress)]),
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        pass

    def finished(self, run: Run, run_dir: RunDirectory, figures: list[str]) -> None:
        print(summary_text(run.summary))
        print(f"\nrun directory  {run_dir.path}")
        for name in figures:
            print(f"figure         {run_dir.figures / name}.png and .pdf")


class Bar(Lines):
    """A progress bar on standard error in place of the lines."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
        )
        self.bar = Progress(*columns, TextColumn("{task.fields[words]}"), console=Console(stderr=True))
        self.bar.start()
        self.task = self.bar.add_task("compiling", total=None, words="")

    def advanced(self, progress: Progress) -> None:
        words = "  ".join([*self.pace.words(progress), *metric_words(progress)])
        self.bar.update(
            self.task, description=progress.unit, completed=progress.done, total=progress.total, words=words
        )

    def close(self) -> None:
        self.bar.stop()


class Pace:
    """How fast a run goes, measured from the end of its first chunk: that one also compiles."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None

    def words(self, progress: Progress) -> list[str]:
        """Units per second and the time that is left, once both are known."""
        moment = time.perf_counter()
        if self.first is None:
            self.first = (moment, progress.done)
            return []
        since, done = self.first
        rate = (progress.done - done) / max(moment - since, 1e-9)
        left = (progress.total - progress.done) / rate if rate > 0 else float("inf")
        return [f"{rate:.3g} {progress.unit}/s", f"{left:.0f} s left"]


def metric_words(progress: Progress) -> list[str]:
    """The numbers of the job, each with its name."""
    return [f"{name} {value:.4g}" for name, value in progress.metrics.items()]


def summary_text(summary: dict[str, Any]) -> str:
    """The summary as an aligned table of names and values."""
    width = max(len(name) for name in summary)
    return "\n".join(f"{name:<{width}}  {_value_text(plain(value))}" for name, value in summary.items())


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value_text, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
