"""Clouds steered from a config: the summary, resuming to the bit, what is refused and where."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import tomli_w
from interrupted import assert_same_results, cut_and_resumed

from jaxflow.errors import InputError, UnreachableError
from jaxflow.experiments import prepare
from jaxflow.experiments.data import localised
from jaxflow.experiments.engine import execute
from jaxflow.experiments.load import build
from jaxflow.experiments.report import Quiet
from jaxflow.experiments.request import new_run
from jaxflow.experiments.steer_tokens import CHUNK
from jaxflow.geometry import Sphere
from jaxflow.io.arrays import load_arrays
from jaxflow.measures import Cloud
from jaxflow.transport import wasserstein_clouds

KEYS = {"status", "stop", "reachable", "distance", "w2", "w2_start", "effort", "iterations", "w2_1", "distance_2"}


@pytest.fixture(scope="module")
def quiet():
    """No figures: they have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxflow.experiments.engine.draw", lambda *_, **__: [])
        yield


def requested(config, folder, name):
    (folder / "config.toml").write_text(tomli_w.dumps(config("steer_tokens")), encoding="utf-8")
    return new_run(folder / "config.toml", out=folder / name)


@pytest.mark.slow
def test_clouds_are_steered_and_a_stopped_search_resumes_to_the_same_bits(config, tmp_path, monkeypatch, quiet):
    request = requested(config, tmp_path, "whole")
    job = prepare(request.experiment, folder=request.folder, precision="float64")
    execute(job, request, reporter=Quiet())
    summary = json.loads(request.run_dir.summary.read_text())
    assert summary.keys() >= KEYS
    assert (summary["status"], summary["stop"]) == ("not_converged", "iterations")
    assert summary["iterations"] == 14 > CHUNK
    assert "control.heads" in summary["advice"]
    assert summary["w2"] < summary["w2_start"]
    arrays, _ = load_arrays(request.run_dir.arrays)
    assert arrays["tokens_1"].shape == (61, 5, 3)
    assert arrays["controls.V"].shape == (2, 2, 3, 3)
    assert arrays["history"].shape == (14, 2)
    np.testing.assert_allclose(np.linalg.norm(arrays["tokens_2"], axis=-1), 1, atol=1e-12)
    # Measured where the saved paths end.
    for p in (1, 2):
        ends = (Cloud(jnp.asarray(x)) for x in (arrays[f"tokens_{p}"][-1], arrays[f"target_{p}"]))
        np.testing.assert_allclose(wasserstein_clouds(*ends, geometry=Sphere()), summary[f"w2_{p}"], rtol=1e-9)
    again = cut_and_resumed(requested(config, tmp_path, "cut"), after=1, monkeypatch=monkeypatch)
    assert_same_results(request.run_dir, again)


def test_parts_of_a_cloud_share_its_mass_by_their_numbers(config, tmp_path):
    parts = [
        {"kind": "explicit", "points": [[1, 0, 0], [0, 1, 0]], "weights": [1, 3]},
        {"kind": "explicit", "points": [[0, 0, 1]]},
    ]
    pair = {"start": {"kind": "uniform", "n": 3, "dim": 3}, "target": parts}
    experiment = build(config("steer_tokens", pairs=[pair]), folder=tmp_path)
    target = prepare(experiment, folder=tmp_path, precision="float64").problem.targets[0]
    np.testing.assert_allclose(target.weights, [2 / 3 / 4, 2 / 3 * 3 / 4, 1 / 3], rtol=1e-12)


def test_a_centre_turns_the_von_mises_fisher_law(config, tmp_path):
    centre = [1.0, 2.0, -2.0]
    start = {"kind": "vmf", "n": 400, "dim": 3, "concentration": 50, "centre": centre}
    pair = {"start": start, "target": {"kind": "uniform", "n": 3, "dim": 3}}
    experiment = build(config("steer_tokens", pairs=[pair]), folder=tmp_path)
    mean = np.asarray(prepare(experiment, folder=tmp_path, precision="float64").problem.starts[0].mean)
    # E⟨x, c⟩ = coth κ − 1/κ = 0.98; across, the mean of 400 has a standard error of 0.007.
    np.testing.assert_allclose(mean, 0.98 * np.array(centre) / 3, atol=0.03)


VMF = {"kind": "vmf", "n": 5, "dim": 3, "concentration": 9}
POINT = {"kind": "explicit", "points": [[1, 0, 0]]}
BAD = [
    ({"pairs": []}, ["pairs", ">= 1"]),
    ({"pairs": [{"start": VMF}]}, ["pairs[0].target", "required"]),
    ({"pairs": [{"start": VMF, "target": []}]}, ["pairs[0].target", "no cloud"]),
    ({"pairs": [{"start": {**VMF, "dim": 2}, "target": VMF}]}, ["pairs[0].target", "got: 3", "expected: 2"]),
    (
        {"pairs": [{"start": VMF, "target": [VMF, {"kind": "explicit", "points": [[0, 0, 2]]}]}]},
        ["pairs[0].target[1].points[0]", "length 2"],
    ),
    ({"pairs": [{"start": {**VMF, "centre": [0, 0, 0]}, "target": VMF}]}, ["pairs[0].start.centre", "direction"]),
    ({"control": {"allow": ""}}, ["control.allow", "ABVb"]),
    ({"control": {"allow": "Bb"}}, ["control.allow", "through V"]),
    ({"control": {"allow": "Vb"}}, ["control.heads", "all heads are one"]),
    ({"control": {"learning_rate": 0.1}}, ["control.learning_rate", "lbfgs does not read it"]),
    ({"control": {"epsilon": 0.1}}, ["control.epsilon", "sliced does not read it"]),
    ({"control": {"method": "gauss-newton"}}, ["control.method", "adam"]),
    ({"solve": {"dt": 2.0}}, ["solve.dt", "control.t1 = 1"]),
    ({"solve": {"method": "tsit5"}}, ["solve.method", "euler"]),
    ({"flow": {"law": "hardmax"}}, ["flow.law", "softmax"]),
]


@pytest.mark.parametrize(("tables", "words"), BAD, ids=[" ".join(words[:1]) for _, words in BAD])
def test_bad_configs_are_refused_with_their_place(config, tmp_path, tables, words):
    with pytest.raises(InputError) as raised:
        build(config("steer_tokens", **tables), folder=tmp_path)
    for word in words:
        assert word in str(raised.value)


def test_equal_starts_with_different_targets_are_refused(config, tmp_path):
    pairs = [{"start": POINT, "target": VMF}, {"start": POINT, "target": {"kind": "uniform", "n": 3, "dim": 3}}]
    experiment = build(config("steer_tokens", pairs=pairs), folder=tmp_path)
    with pytest.raises(UnreachableError, match="cannot separate equal measures"):
        prepare(experiment, folder=tmp_path, precision="float64")


def test_files_of_all_clouds_move_beside_the_config(config, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text("1,0,0\n0,1,0\n")
    files = [{"kind": "explicit", "points": f"{folder}/x.csv"} for folder in ("a", "b")]
    experiment = build(config("steer_tokens", pairs=[{"start": files[0], "target": [VMF, files[1]]}]), folder=tmp_path)
    local, found = localised(experiment, folder=tmp_path)
    assert (local.pairs[0].start.points, local.pairs[0].target[1].points) == ("x.csv", "target0-1-x.csv")
    assert {name: path.parent.name for name, path in found.items()} == {"x.csv": "a", "target0-1-x.csv": "b"}
