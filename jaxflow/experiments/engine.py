"""How is a job run so that it can be watched, stopped and resumed? Chunk by chunk, with checkpoints."""

import time
from typing import Any

from jaxflow.errors import JaxflowError, NumericalError
from jaxflow.experiments.data import localised
from jaxflow.experiments.figures import draw
from jaxflow.experiments.job import Job, Run, State
from jaxflow.experiments.load import resolved
from jaxflow.experiments.report import Reporter
from jaxflow.experiments.request import Request
from jaxflow.io.arrays import save_arrays
from jaxflow.io.jsonfile import read_json, write_json
from jaxflow.io.manifest import environment, now
from jaxflow.io.rundir import Checkpoint, RunDirectory


class Interrupted(JaxflowError):
    """The user stopped a run, before its end (its checkpoint lies in `run_dir`) or while its figures were drawn."""

    def __init__(self, run_dir: RunDirectory, *, finished: bool = False) -> None:
        self.run_dir = run_dir
        if finished:
            super().__init__(f"interrupted; the results are complete; for the figures: jaxflow plot {run_dir.path}")
        else:
            super().__init__(f"interrupted; to go on: jaxflow run --resume --out {run_dir.path}")


def execute(job: Job, request: Request, *, reporter: Reporter) -> Run:
    """Run `job` to its end, and write everything into the run directory of `request`.

    Raises:
        Interrupted: on Ctrl-C. The run can be resumed, and its results are then the same as without a break.
        NumericalError: the job failed; the summary on disk holds its status and advice.
    """
    try:
        run = _run(job, request, reporter)
    finally:
        reporter.close()
    run_dir = request.run_dir
    # The results are safe by now, and figures can be drawn again from them.
    try:
        figures = draw(run_dir, request.experiment, arrays=run.arrays, summary=run.summary)
    except KeyboardInterrupt:
        raise Interrupted(run_dir, finished=True) from None
    reporter.finished(run, run_dir, figures)
    return run


def _run(job: Job, request: Request, reporter: Reporter) -> Run:
    began = time.perf_counter()
    run_dir = request.run_dir
    checkpoint = _continue(job, run_dir) if request.resume else _start(job, request)
    manifest = _open_manifest(request)
    try:
        run = job.finish(_advance(job, run_dir, checkpoint, reporter))
    except KeyboardInterrupt:
        run_dir.write_summary({"status": "interrupted"})
        _close_manifest(run_dir, manifest, began, finished=False)
        raise Interrupted(run_dir) from None
    except NumericalError as error:
        run_dir.write_summary({"status": error.status, "advice": error.advice})
        _close_manifest(run_dir, manifest, began)
        run_dir.drop_checkpoint()
        raise
    save_arrays(run_dir.arrays, run.arrays)
    run_dir.write_summary(run.summary)
    _close_manifest(run_dir, manifest, began)
    run_dir.drop_checkpoint()
    return run


def _start(job: Job, request: Request) -> Checkpoint:
    # The first state comes before the folder: a job that refuses to begin leaves nothing behind.
    state = job.begin()
    experiment, files = localised(request.experiment, folder=request.folder)
    request.run_dir.create(resolved(experiment), files)
    return Checkpoint(state, done=0, total=0, lines=0)


def _continue(job: Job, run_dir: RunDirectory) -> Checkpoint:
    checkpoint = run_dir.load_checkpoint() or Checkpoint(job.begin(), done=0, total=0, lines=0)
    run_dir.keep_metrics(checkpoint.lines)
    run_dir.write_summary({"status": "running"})
    return checkpoint


def _advance(job: Job, run_dir: RunDirectory, checkpoint: Checkpoint, reporter: Reporter) -> State:
    # How much there is to do is known only after the first chunk.
    while checkpoint.lines == 0 or checkpoint.done < checkpoint.total:
        state, progress = job.advance(checkpoint.state)
        checkpoint = Checkpoint(state, progress.done, progress.total, checkpoint.lines + 1)
        run_dir.append_metrics({"done": progress.done, **progress.metrics})
        run_dir.save_checkpoint(checkpoint)
        reporter.advanced(progress)
    return checkpoint.state


def _open_manifest(request: Request) -> dict[str, Any]:
    """Record the surroundings of this run; a resumed one keeps its start and the seconds it has used."""
    kept = read_json(request.run_dir.manifest) if request.resume else {"started": now(), "seconds": 0.0}
    manifest = environment(precision=request.precision, seed=request.experiment.seed, started=kept["started"])
    manifest["seconds"] = kept["seconds"]
    write_json(request.run_dir.manifest, manifest)
    return manifest


def _close_manifest(run_dir: RunDirectory, manifest: dict[str, Any], began: float, *, finished: bool = True) -> None:
    seconds = manifest["seconds"] + time.perf_counter() - began
    write_json(run_dir.manifest, {**manifest, "seconds": seconds, "finished": now() if finished else None})
