"""Does this process compute right, and does it say so when it does not?"""

import os
import subprocess
import sys

import jax
import pytest

from jaxflow import runtime


def in_a_fresh_process(code):
    """Run code as a user would: without the flags by which the tests compile faster."""
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)


def test_compiled_equals_eager_at_16385():
    """Regression for jax-ml/jax#39103: jaxlib 0.10.2 returns wrong numbers here, by 8e-3."""
    assert runtime.compiled_gap(16385) < 1e-12
    # The optimiser, too, which this process does without.
    done = in_a_fresh_process("""
from jaxflow import runtime
runtime.configure(platform="cpu", cache=False)
print(runtime.compiled_gap(16385))
""")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-12


def test_doctor_finds_this_process_well():
    findings = {f.name: f for f in runtime.doctor()}
    assert findings.keys() == {"jax", "device", "precision", "arithmetic", "compiled = eager"}
    assert all(f.ok for f in findings.values()), findings
    assert jax.__version__ in findings["jax"].detail


def test_doctor_sees_float32():
    with jax.enable_x64(False):
        findings = {f.name: f for f in runtime.doctor()}
    assert not findings["precision"].ok
    assert "float32" in findings["precision"].detail
    assert "jax_enable_x64" in findings["precision"].fix


@pytest.mark.parametrize("version", runtime.WRONG_JAXLIB)
def test_doctor_names_a_jaxlib_that_computes_wrong(monkeypatch, version):
    monkeypatch.setattr(runtime.metadata, "version", lambda name: version)
    finding = runtime.doctor()[0]
    assert not finding.ok
    assert version in finding.detail
    assert "39103" in finding.fix


def test_configure_sets_precision_and_refuses_absent_platforms(tmp_path):
    done = in_a_fresh_process(f"""
import os
os.environ["JAX_COMPILATION_CACHE_DIR"] = {str(tmp_path)!r}
from jaxflow.errors import InputError
from jaxflow.runtime import configure
configure(platform="cpu", precision="float64")
import jax, jax.numpy as jnp
assert jnp.ones(()).dtype == jnp.float64
assert jax.config.jax_default_matmul_precision == "highest"
assert jax.config.jax_compilation_cache_dir == {str(tmp_path)!r}
""")
    assert done.returncode == 0, done.stderr
    refused = in_a_fresh_process("""
from jaxflow.errors import InputError
from jaxflow.runtime import configure
try:
    configure(platform="tpu", cache=False)
except InputError as error:
    print(error)
""")
    assert "platform: is not available on this machine" in refused.stdout, refused.stderr
