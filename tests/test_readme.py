"""The README's own example runs, and its set-up commands are the two that continuous integration takes from it."""

import re
from pathlib import Path

import numpy as np
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.slow
def test_the_twelve_lines_run_and_arrive():
    first = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    assert sum(bool(line.strip()) for line in first.splitlines()) <= 12
    names = {}
    exec(compile(first, "README.md", "exec"), names)
    plan, sol, target = names["plan"], names["sol"], names["target"]
    assert bool(plan.converged)
    assert plan.residual < 1e-8
    # 1000 random tokens miss mean and covariance by a few hundredths.
    np.testing.assert_allclose(sol.final.mean, target.mean, atol=0.1)
    np.testing.assert_allclose(sol.final.covariance, target.covariance, atol=0.1)


def test_there_are_exactly_two_set_up_commands():
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert "jaxflow run configs/quickstart.toml" in commands[0]
    assert commands[1].endswith(".venv/bin/pytest")


def test_every_config_that_the_readme_names_exists():
    root = Path(__file__).parents[1]
    named = set(re.findall(r"`(configs/[\w/.]+\.toml)`", README))
    assert {"configs/quickstart.toml", "configs/steer/iris.toml"} <= named
    assert all((root / name).is_file() for name in named)
