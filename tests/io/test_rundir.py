"""Is a run directory created once, resumed only when unfinished, and its JSON strict?"""

import json

import numpy as np
import pytest

from jaxflow.errors import InputError
from jaxflow.io.jsonfile import read_json, write_json
from jaxflow.io.rundir import Checkpoint, RunDirectory, default_directory


def test_json_holds_plain_finite_values(tmp_path):
    value = {"a": np.float32(0.5), "b": [np.nan, np.inf], "c": np.arange(2), "d": np.array(np.nan), "e": None}
    write_json(tmp_path / "v.json", value)
    assert "NaN" not in (tmp_path / "v.json").read_text()
    assert read_json(tmp_path / "v.json") == {"a": 0.5, "b": [None, None], "c": [0, 1], "d": None, "e": None}


@pytest.mark.parametrize("text", [None, "{", "[1]"])
def test_bad_json_is_named(tmp_path, text):
    if text is not None:
        (tmp_path / "v.json").write_text(text)
    with pytest.raises(InputError, match=r"v\.json"):
        read_json(tmp_path / "v.json")


def test_create_writes_config_and_data(tmp_path):
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    run_dir = RunDirectory(tmp_path / "runs" / "a")
    run_dir.create('kind = "moments"\n', {"x.csv": tmp_path / "x.csv"})
    assert run_dir.config.read_text() == 'kind = "moments"\n'
    assert (run_dir.path / "x.csv").read_text() == "1,2\n3,4\n"
    assert run_dir.status() == "running"
    with pytest.raises(InputError, match="not empty"):
        run_dir.create("", {})


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError, match="not empty"):
        RunDirectory(tmp_path / "a").require_free()


def test_only_unfinished_runs_can_be_resumed(tmp_path):
    run_dir = RunDirectory(tmp_path)
    with pytest.raises(InputError, match="no run to resume"):
        run_dir.require_unfinished()
    run_dir.create("", {})
    run_dir.require_unfinished()
    run_dir.write_summary({"status": "done"})
    with pytest.raises(InputError, match="already finished"):
        run_dir.require_unfinished()


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    run_dir = RunDirectory(tmp_path)
    run_dir.create("", {})
    for done in range(3):
        run_dir.append_metrics({"done": done, "loss": np.nan})
    run_dir.keep_metrics(2)
    lines = run_dir.metrics.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"done": 0, "loss": None}, {"done": 1, "loss": None}]


def test_a_checkpoint_comes_back(tmp_path):
    run_dir = RunDirectory(tmp_path)
    assert run_dir.load_checkpoint() is None
    run_dir.save_checkpoint(Checkpoint({"x": np.array([1.5])}, done=2, total=9, lines=2))
    found = run_dir.load_checkpoint()
    assert found is not None
    assert (found.done, found.total, found.lines, found.state["x"][0]) == (2, 9, 2, 1.5)
    run_dir.drop_checkpoint()
    assert run_dir.load_checkpoint() is None


def test_the_default_directory_is_the_first_free_one(tmp_path):
    config = tmp_path / "sphere.toml"
    assert default_directory(config, root=tmp_path).path.name == "sphere"
    (tmp_path / "sphere").mkdir()
    (tmp_path / "sphere-2").mkdir()
    assert default_directory(config, root=tmp_path).path.name == "sphere-3"
