"""Does a run write what it must, and does a resumed run end exactly like one without a break?"""

import sys

import numpy as np
import pytest
from fake_job import FakeJob, FakeViz

from jaxflow.errors import InputError, NumericalError
from jaxflow.experiments.engine import Interrupted, execute
from jaxflow.experiments.load import build, load
from jaxflow.experiments.report import Lines, Quiet
from jaxflow.experiments.request import Request, resumed_run
from jaxflow.io.arrays import load_arrays
from jaxflow.io.jsonfile import read_json
from jaxflow.io.rundir import RunDirectory

RESULTS = ("arrays.safetensors", "metrics.jsonl", "summary.json", "config.toml")


@pytest.fixture(autouse=True)
def viz(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxflow.viz", FakeViz)


@pytest.fixture
def request_in(config, tmp_path):
    """Makes the request of a moments run, with samples in a file, into a folder of the given name."""
    (tmp_path / "x.csv").write_text("1,2\n3,4\n5,7\n")
    experiment = build(config("moments", start={"samples": "x.csv"}, seed=5), folder=tmp_path)
    return lambda name: Request(experiment, tmp_path, RunDirectory(tmp_path / name), "float64")


def test_a_run_writes_all_its_files(request_in):
    asked = request_in("run")
    run = execute(FakeJob(), asked, reporter=Quiet())
    run_dir = asked.run_dir
    arrays, _ = load_arrays(run_dir.arrays)
    np.testing.assert_array_equal(arrays["walk"], run.arrays["walk"])
    summary = read_json(run_dir.summary)
    assert (summary["status"], summary["missing"], len(summary["walk"])) == ("done", None, 3)
    assert len(run_dir.metrics.read_text().splitlines()) == 3
    assert (run_dir.figures / "moments_walk.png").read_text().startswith("png 160")
    assert (run_dir.figures / "moments_walk.pdf").read_text() == "pdf None {'CreationDate': None}"
    assert not run_dir.checkpoint.exists()
    assert load(run_dir.config) == asked.experiment
    manifest = read_json(run_dir.manifest)
    assert (manifest["precision"], manifest["seed"], manifest["platform"]) == ("float64", 5, "cpu")
    assert manifest["finished"] >= manifest["started"]
    assert manifest["seconds"] > 0
    assert {"jax", "jaxlib", "equinox", "diffrax", "numpy", "python", "jaxflow"} <= manifest.keys()


@pytest.mark.parametrize("fails_at", [0, 4, 8])
def test_a_resumed_run_ends_like_one_without_a_break(request_in, fails_at):
    whole, broken = request_in("whole"), request_in("broken")
    execute(FakeJob(), whole, reporter=Quiet())
    with pytest.raises(Interrupted, match=r"jaxflow run --resume --out .*broken"):
        execute(FakeJob(fails_at=fails_at), broken, reporter=Quiet())
    assert read_json(broken.run_dir.summary) == {"status": "interrupted"}
    assert read_json(broken.run_dir.manifest)["finished"] is None
    broken.run_dir.append_metrics({"written": "after the checkpoint"})
    execute(FakeJob(), resumed_run(None, out=broken.run_dir.path), reporter=Quiet())
    for name in RESULTS:
        assert (broken.run_dir.path / name).read_bytes() == (whole.run_dir.path / name).read_bytes()
    assert not broken.run_dir.checkpoint.exists()


def test_a_job_stopped_while_it_finishes_is_only_finished(request_in, monkeypatch):
    asked = request_in("run")
    with monkeypatch.context() as patch:
        patch.setattr(FakeJob, "finish", _stop)
        with pytest.raises(Interrupted):
            execute(FakeJob(), asked, reporter=Quiet())
    monkeypatch.setattr(FakeJob, "advance", _stop)
    execute(FakeJob(), resumed_run(None, out=asked.run_dir.path), reporter=Quiet())
    assert len(asked.run_dir.metrics.read_text().splitlines()) == 3


def _stop(*_):
    raise KeyboardInterrupt


def test_only_the_same_run_is_resumed(request_in, tmp_path):
    asked = request_in("run")
    with pytest.raises(Interrupted):
        execute(FakeJob(fails_at=4), asked, reporter=Quiet())
    config = asked.run_dir.config
    assert resumed_run(config, out=asked.run_dir.path).experiment == load(config)
    with pytest.raises(InputError, match=r"solve\.t1: the config differs(.|\n)*got: 2\.0(.|\n)*expected: 1\.0"):
        resumed_run(config, overrides=["solve.t1=2", "solve.save_at=[1]"], out=asked.run_dir.path)
    with pytest.raises(InputError, match="--precision"):
        resumed_run(None, out=asked.run_dir.path, precision="float32")
    with pytest.raises(InputError, match="--out"):
        resumed_run(config, out=None)
    execute(FakeJob(), resumed_run(None, out=asked.run_dir.path), reporter=Quiet())
    with pytest.raises(InputError, match="already finished"):
        resumed_run(None, out=asked.run_dir.path)


def test_a_numerical_failure_leaves_status_and_advice(request_in):
    asked = request_in("run")
    failure = NumericalError("a token left the sphere", status="nonfinite", advice="halve solve.dt")
    with pytest.raises(NumericalError):
        execute(FakeJob(fails_at=8, failure=failure), asked, reporter=Quiet())
    assert read_json(asked.run_dir.summary) == {"status": "nonfinite", "advice": "halve solve.dt"}
    assert not asked.run_dir.checkpoint.exists()


def test_a_job_that_refuses_to_begin_leaves_nothing(request_in, monkeypatch):
    def refuse(_):
        raise InputError("the target has another rank", where="target")

    monkeypatch.setattr(FakeJob, "begin", refuse)
    asked = request_in("run")
    with pytest.raises(InputError, match="another rank"):
        execute(FakeJob(), asked, reporter=Quiet())
    assert not asked.run_dir.path.exists()


def test_lines_show_every_chunk_and_the_results(request_in, capsys):
    asked = request_in("run")
    execute(FakeJob(), asked, reporter=Lines())
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["steps 4/12", "steps 8/12", "steps 12/12"]
    assert "steps/s" in lines[1]
    assert "0 s left" in lines[2]
    assert "length" in lines[0]
    assert "status   done" in printed.out
    assert f"run directory  {asked.run_dir.path}" in printed.out
    assert "moments_walk.png" in printed.out
