"""A run that is stopped and resumed, and what it must share with one that is not."""

import numpy as np
import pytest

from jaxflow.experiments import prepare
from jaxflow.experiments.engine import Interrupted, execute
from jaxflow.experiments.report import Quiet
from jaxflow.experiments.request import resumed_run
from jaxflow.io.arrays import load_arrays


def cut_and_resumed(request, *, after, monkeypatch):
    """Run what is asked, stop it as Ctrl-C does after so many chunks, and go on; its directory."""
    job = prepare(request.experiment, folder=request.folder, precision=request.precision)
    advance, calls = type(job).advance, []

    def stop(self, state):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return advance(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(type(job), "advance", stop)
        with pytest.raises(Interrupted):
            execute(job, request, reporter=Quiet())
    assert len(request.run_dir.metrics.read_text().splitlines()) == after
    again = resumed_run(None, out=request.run_dir.path)
    with monkeypatch.context() as patch:
        # Drawn from results that are compared to the bit: the figures would be those of the whole run.
        patch.setattr("jaxflow.experiments.engine.draw", lambda *_, **__: [])
        execute(prepare(again.experiment, folder=again.folder, precision=again.precision), again, reporter=Quiet())
    return request.run_dir


def assert_same_results(one, other):
    """Arrays to the bit, summary and metrics to the letter."""
    first, second = (load_arrays(directory.arrays)[0] for directory in (one, other))
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert one.summary.read_text() == other.summary.read_text()
    assert one.metrics.read_text() == other.metrics.read_text()
