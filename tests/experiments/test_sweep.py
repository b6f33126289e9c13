"""Several numbers of heads in one config: each is the run with that number alone, and the fitted powers are right."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate
from interrupted import assert_same_results, cut_and_resumed

from jaxflow.errors import InputError
from jaxflow.experiments import prepare
from jaxflow.experiments.engine import execute
from jaxflow.experiments.load import build
from jaxflow.experiments.report import Quiet
from jaxflow.experiments.request import new_run
from jaxflow.experiments.sweep import energy_floor, fit_exponent
from jaxflow.io.arrays import load_arrays

CONFIGS = Path(__file__).parents[2] / "configs" / "particles"
SMALL = ["tokens.n=12", "paths=2", "solve.t1=0.2", "solve.dt=0.01", "solve.save_every=2"]
SWEPT = ["weights.heads=[1, 3]"]


def prepared(name, out, overrides):
    request = new_run(CONFIGS / name, overrides=[*SMALL, *overrides], out=out)
    return prepare(request.experiment, folder=request.folder, precision="float64"), request


def finished(job):
    """The Run of a job, without the engine."""
    state, done = job.begin(), False
    while not done:
        state, progress = job.advance(state)
        done = progress.done == progress.total
    return job.finish(state)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    job, request = prepared("s2_ou.toml", tmp_path_factory.mktemp("sweep") / "run", SWEPT)
    execute(job, request, reporter=Quiet())
    return request.run_dir, json.loads(request.run_dir.summary.read_text())


def test_every_number_of_heads_is_the_run_with_that_number_alone(sweep, tmp_path):
    run_dir, summary = sweep
    arrays, _ = load_arrays(run_dir.arrays)
    assert summary["heads"] == arrays["heads"].tolist() == [1, 3]
    for i, heads in enumerate([1, 3]):
        job, _ = prepared("s2_ou.toml", tmp_path / str(heads), [f"weights.heads={heads}"])
        alone = finished(job)
        for name, x in alone.arrays.items():
            np.testing.assert_array_equal(arrays[name] if name == "ts" else arrays[name][i], x, err_msg=name)
        for name in ("energy_final", "slope_mean", "rate_mean", "balance_residual_std", "clusters"):
            assert summary[name][i] == alone.summary[name], name
    assert (summary["status"], summary["paths"], summary["steps"]) == ("done", 2, 20)


def test_the_figures_of_a_sweep(sweep):
    names = {path.stem for path in sweep[0].figures.glob("*.png")}
    each = {f"{name}_h{heads}" for name in ("snapshots", "balance") for heads in (1, 3)}
    assert names == each | {"dissipation", "exponent", "balances"}


def test_a_sweep_stopped_in_its_second_run_resumes_to_the_same_bits(sweep, tmp_path, monkeypatch):
    whole, _ = sweep
    monkeypatch.setattr("jaxflow.experiments.engine.draw", lambda *_, **__: [])
    _, request = prepared("s2_ou.toml", tmp_path / "cut", SWEPT)
    assert_same_results(whole, cut_and_resumed(request, after=13, monkeypatch=monkeypatch))


@pytest.mark.slow
def test_adaptive_runs_and_runs_without_a_balance_can_be_swept(config, tmp_path):
    weights = {"kind": "constant", "heads": [1, 2]}
    for flow, solve in (({}, {"t1": 0.1, "method": "tsit5"}), ({"law": "hardmax"}, {"t1": 0.1, "dt": 0.05})):
        job = prepare(
            build(config("particles", weights=weights, flow=flow, solve=solve), folder=tmp_path),
            folder=tmp_path,
            precision="float64",
        )
        found = finished(job)
        assert found.summary["status"] == "done"
        assert (found.summary["energy_final"] is None) == bool(flow)
        assert (found.summary["slope_exponent"] is None) == bool(flow)


def test_the_exponent_of_an_exact_power_and_the_error_of_noisy_means():
    heads, rng = [1, 10, 100], np.random.default_rng(0)
    assert fit_exponent(heads, [3.0, 0.3, 0.03], None, paths=1) == (pytest.approx(-1.0, abs=1e-14), None)
    assert fit_exponent(heads, [3.0, -0.3, 0.03], None, paths=1) == (None, None)
    assert fit_exponent(heads, None, None, paths=1) == (None, None)
    # The standard error against the spread of the exponent over 4000 repetitions of an experiment with 25 paths.
    draws = np.array([2.0, 0.3, 0.02]) * (1 + 0.2 * rng.standard_normal((4000, 25, 3)))
    fits = [fit_exponent(heads, x.mean(0).tolist(), x.std(0, ddof=1).tolist(), paths=25) for x in draws]
    found, errors = np.array(fits, float).T
    np.testing.assert_allclose(errors.mean(), found.std(), rtol=0.05)
    np.testing.assert_allclose(found.mean(), np.log(0.02 / 2.0) / np.log(100), atol=1e-3)


def test_the_energy_floor_is_that_of_the_uniform_measure(config, tmp_path):
    ou = {"kind": "ou", "heads": [1, 2], "noise_var": 2.0}
    steps = {"t1": 1.0, "dt": 0.1}
    floor = energy_floor(build(config("particles", weights=ou, solve=steps), folder=tmp_path), dim=3, t=40.0)
    K = lambda s: np.exp(s + (1 + s * s) / 4)  # noqa: E731
    np.testing.assert_allclose(floor, scipy.integrate.quad(K, -1, 1)[0] / 4, rtol=1e-14)
    np.testing.assert_allclose(floor, 0.8309227507871672, rtol=1e-14)
    for weights, flow in (
        ({**ou, "mean": [[2, 0, 0], [0, 1, 0], [0, 0, 1]]}, {}),
        (ou, {"direction": "ascend"}),
        ({"kind": "oscillating", "heads": [1, 2]}, {}),
    ):
        other = build(config("particles", weights=weights, flow=flow, solve=steps), folder=tmp_path)
        assert energy_floor(other, dim=3, t=40.0) is None


def test_lists_that_are_no_sweep_are_refused(config, tmp_path):
    def refused(message, kind="particles", heads=(1, 2), **tables):
        with pytest.raises(InputError, match=message):
            build(config(kind, weights={"kind": "constant", "heads": list(heads), **tables}), folder=tmp_path)

    refused("must increase", heads=(3, 2))
    refused("must increase", heads=(2, 2))
    refused("length >= 2", heads=(2,))
    refused("only particles", kind="moments")
    refused("does not apply", D=[[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
