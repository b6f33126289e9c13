"""Do `list`, `verify` and `doctor` say what they found, and with which exit code?"""

import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from jaxflow import runtime
from jaxflow.cli.app import app


@dataclass(frozen=True)
class Result:
    name: str
    source: str
    exact: float
    computed: float
    error: float
    tolerance: float
    passed: bool
    seconds: float


@dataclass(frozen=True)
class Check:
    """Compares `computed` with 1."""

    name: str
    computed: float
    source: str = "2605.18870"
    tolerance: float = 1e-6

    def run(self):
        error = abs(self.computed - 1)
        return Result(self.name, self.source, 1.0, self.computed, error, 1e-6, error <= 1e-6, 0.1)


@pytest.fixture
def jaxflow(monkeypatch, tmp_path):
    """Calls the command line in an empty folder, with two checks of which the second fails."""
    monkeypatch.chdir(tmp_path)
    checks = (Check("blow_up_time", 1.0), Check("energy_floor", float("nan")))
    monkeypatch.setitem(sys.modules, "jaxflow.scenarios", SimpleNamespace(checks=lambda: checks))
    monkeypatch.setattr(runtime, "configure", lambda **_: None)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_verify_prints_a_row_per_check_and_fails_with_3(jaxflow, tmp_path):
    done = jaxflow("verify", "--json", "results.json")
    assert done.exit_code == 3
    rows = done.stdout.splitlines()
    assert "passed" in rows[1]
    assert "FAILED" in rows[2]
    assert "1 of 2 checks failed: energy_floor" in done.stderr
    report = json.loads((tmp_path / "results.json").read_text())
    assert [check["passed"] for check in report["checks"]] == [True, False]
    assert report["checks"][1]["computed"] is None
    assert "jax" in report["versions"]


@pytest.mark.parametrize("name", ["blow_up_time", "blow", "*_time"])
def test_verify_selects_by_part_or_pattern(jaxflow, name):
    done = jaxflow("verify", "--only", name)
    assert done.exit_code == 0
    assert "all 1 checks passed" in done.stdout


def test_verify_lists_the_names_it_knows(jaxflow):
    done = jaxflow("verify", "--only", "gravity")
    assert done.exit_code == 2
    assert "blow_up_time, energy_floor" in done.stderr


def test_doctor_gives_the_remedy(jaxflow, monkeypatch):
    good = runtime.Finding("jax", True, "jax 0.10.1")
    bad = runtime.Finding("device", False, "none found", fix="install a driver")
    monkeypatch.setattr(runtime, "doctor", lambda: [good])
    assert jaxflow("doctor").exit_code == 0
    monkeypatch.setattr(runtime, "doctor", lambda: [good, bad])
    done = jaxflow("doctor")
    assert done.exit_code == 3
    assert "fix: install a driver" in done.stdout
    assert "not in order: device" in done.stderr


def test_list_names_kinds_keys_configs_and_checks(jaxflow, tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "a.toml").write_text('# A circle.\nkind = "moments"\n')
    (tmp_path / "configs" / "b.toml").write_text("kind = ")
    done = jaxflow("list")
    assert done.exit_code == 0
    assert "configs/a.toml  moments  A circle." in done.stdout
    assert "configs/b.toml  no valid TOML" in done.stdout
    for word in (
        "particles",
        "steer",
        "steer_tokens",
        "cross_polytope",
        "oscillating",
        "phase",
        "save_every",
        "blow_up_time",
    ):
        assert word in done.stdout
