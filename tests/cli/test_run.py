"""Does `jaxflow run` end with the right exit code, and leave nothing behind when it refuses?"""

import sys

import pytest
from fake_job import FakeFilm, FakeJob, FakeViz
from typer.testing import CliRunner

from jaxflow import experiments, runtime
from jaxflow.cli.app import app
from jaxflow.errors import NumericalError, UnreachableError
from jaxflow.io.jsonfile import read_json

CONFIG = """
kind = "moments"
[start]
covariance = [[1.0, 0.0], [0.0, 1.0]]
[weights]
kind = "constant"
A = [[0.0, 1.0], [-1.0, 0.0]]
[solve]
t1 = 1.0
"""


@pytest.fixture
def jaxflow(monkeypatch, tmp_path):
    """Calls the command line inside a folder that holds `circle.toml`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jaxflow.viz", FakeViz)
    monkeypatch.setattr(runtime, "configure", lambda **_: None)
    (tmp_path / "circle.toml").write_text(CONFIG)
    use_job(monkeypatch, FakeJob())
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def use_job(monkeypatch, job):
    """Let every config be answered by `job`."""
    monkeypatch.setattr(experiments, "prepare", lambda experiment, *, folder, precision: job)


def test_run_writes_a_numbered_directory_and_prints_it(jaxflow, tmp_path):
    first, second = jaxflow("run", "circle.toml"), jaxflow("run", "circle.toml", "--quiet")
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "run directory  runs/circle" in first.stdout
    assert second.stdout == "runs/circle-2\n"
    assert read_json(tmp_path / "runs" / "circle-2" / "summary.json")["status"] == "done"


def test_the_config_in_a_run_directory_runs_again(jaxflow, tmp_path):
    jaxflow("run", "circle.toml", "--out", "a", "--set", "solve.t1=3")
    again = jaxflow("run", "a/config.toml", "--out", "b")
    assert again.exit_code == 0
    assert (tmp_path / "a/config.toml").read_bytes() == (tmp_path / "b/config.toml").read_bytes()


def test_a_dry_run_describes_and_writes_nothing(jaxflow, tmp_path):
    done = jaxflow("run", "circle.toml", "--dry-run")
    assert done.exit_code == 0
    assert "steps             12" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["circle.toml"]


def test_the_platform_and_precision_are_configured_first(jaxflow, monkeypatch):
    seen = []
    monkeypatch.setattr(runtime, "configure", lambda **choices: seen.append(choices))
    jaxflow("run", "circle.toml", "--platform", "cpu", "--precision", "float32")
    jaxflow("run", "circle.toml")
    assert seen == [
        {"platform": "cpu", "precision": "float32", "cpu_devices": 1},
        {"platform": None, "precision": "float64", "cpu_devices": 1},
    ]


@pytest.mark.parametrize("status", ["done", "blow_up"])
def test_results_exit_with_0(jaxflow, monkeypatch, status):
    use_job(monkeypatch, FakeJob(summary={"status": status}))
    assert jaxflow("run", "circle.toml").exit_code == 0


@pytest.mark.parametrize("status", ["not_converged", "nonfinite", "max_steps"])
def test_failures_exit_with_3_and_advice_but_keep_their_files(jaxflow, monkeypatch, tmp_path, status):
    use_job(monkeypatch, FakeJob(summary={"status": status, "advice": "raise control.iterations"}))
    done = jaxflow("run", "circle.toml")
    assert done.exit_code == 3
    assert status in done.stderr
    assert "raise control.iterations" in done.stderr
    assert read_json(tmp_path / "runs/circle/summary.json")["status"] == status


def test_numerical_errors_exit_with_3(jaxflow, monkeypatch):
    failure = NumericalError("not finite", status="nonfinite", advice="halve solve.dt")
    use_job(monkeypatch, FakeJob(fails_at=4, failure=failure))
    done = jaxflow("run", "circle.toml")
    assert done.exit_code == 3
    assert "halve solve.dt" in done.stderr


def test_a_bug_exits_with_1_and_its_traceback(jaxflow, monkeypatch):
    use_job(monkeypatch, FakeJob(fails_at=4, failure=ZeroDivisionError("a bug")))
    done = jaxflow("run", "circle.toml")
    assert done.exit_code == 1
    assert isinstance(done.exception, ZeroDivisionError)


def test_unreachable_targets_exit_with_2(jaxflow, monkeypatch, tmp_path):
    def refuse(experiment, *, folder, precision):
        raise UnreachableError("rank is invariant", where="target.covariance")

    monkeypatch.setattr(experiments, "prepare", refuse)
    done = jaxflow("run", "circle.toml")
    assert done.exit_code == 2
    assert "target.covariance: rank is invariant" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("again", [["circle.toml"], []])
def test_ctrl_c_leaves_a_run_that_resumes(jaxflow, monkeypatch, tmp_path, again):
    use_job(monkeypatch, FakeJob(fails_at=8))
    stopped = jaxflow("run", "circle.toml", "--out", "a")
    assert stopped.exit_code == 130
    assert stopped.stderr.splitlines()[-1].endswith("jaxflow run --resume --out a")
    resumed = jaxflow("run", *again, "--resume", "--out", "a")
    assert resumed.exit_code == 0
    assert len((tmp_path / "a/metrics.jsonl").read_text().splitlines()) == 3
    finished = jaxflow("run", *again, "--resume", "--out", "a")
    assert finished.exit_code == 2
    assert "already finished" in finished.stderr


def test_resume_refuses_another_config(jaxflow, monkeypatch):
    use_job(monkeypatch, FakeJob(fails_at=8))
    jaxflow("run", "circle.toml", "--out", "a")
    done = jaxflow("run", "circle.toml", "--resume", "--out", "a", "--set", "seed=9")
    assert done.exit_code == 2
    assert "seed: the config differs" in done.stderr


BAD_RUNS = [
    (["--set", "solve.t2=1"], "solve.t2: unknown key"),
    (["--set", "solve.dt=2"], "solve.dt: the step is longer than the run"),
    (["--set", "solve.t1"], "--set solve.t1: not of the form key.path=value"),
    (["--set", "weights.A=[[1, 2, 3]]"], "weights.A: wrong shape"),
    (["--set", "start.covariance=[[1, 2], [2, 1]]"], "smallest eigenvalue -1"),
    (["--set", 'start={samples = "nan.csv"}'], "nan.csv, line 2, column 1"),
    (["--set", 'flow.direction="ascend"'], "flow.direction: an option that does not apply"),
    (["--set", 'tokens={kind="uniform", n=-1, dim=2}'], "tokens: unknown key"),
    (["--set", "start.mean=[0]"], "start.mean: wrong length"),
    (["--out", "full"], "full: the run directory is not empty"),
    (["--resume"], "--resume: nothing says which run to resume"),
    (["--resume", "--out", "full"], "full: there is no run to resume here"),
    (["--precision", "float16"], "float16"),
    (["--platform", "cpu", "--nonsense"], "nonsense"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_RUNS)
def test_bad_runs_exit_with_2_and_leave_nothing(jaxflow, tmp_path, arguments, message):
    (tmp_path / "nan.csv").write_text("1,2\nnan,3\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    done = jaxflow("run", "circle.toml", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["run"], "which config?"), (["run", "none.toml"], "does not exist"), (["jump"], "jump")],
)
def test_bad_calls_exit_with_2(jaxflow, arguments, message):
    done = jaxflow(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_plot_draws_the_figures_again(jaxflow, tmp_path):
    jaxflow("run", "circle.toml", "--out", "a")
    picture = tmp_path / "a/figures/moments_walk.png"
    picture.unlink()
    done = jaxflow("plot", "a")
    assert done.exit_code == 0
    assert picture.exists()
    assert "a/figures/moments_walk.png" in done.stdout


def test_runs_of_other_kinds_have_no_film(jaxflow, tmp_path):
    jaxflow("run", "circle.toml", "--out", "a")
    done = jaxflow("plot", "a", "--animate")
    assert done.exit_code == 2
    assert "there is no film of this run" in done.stderr
    assert not list(tmp_path.glob("a/figures/*.gif"))


def test_plot_draws_a_film_where_there_is_one(jaxflow, tmp_path, monkeypatch):
    monkeypatch.setattr(FakeViz, "films", {"steering": FakeFilm()})
    jaxflow("run", "circle.toml", "--out", "a")
    done = jaxflow("plot", "a", "--animate")
    assert done.exit_code == 0
    assert done.stdout == "a/figures/steering.gif\n"
    # No temporary file stays beside it.
    assert [path.name for path in (tmp_path / "a/figures").iterdir() if "gif" in path.name] == ["steering.gif"]


def test_plot_needs_a_finished_run(jaxflow):
    done = jaxflow("plot", "nowhere")
    assert done.exit_code == 2
    assert "no results to plot" in done.stderr
