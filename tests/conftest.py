"""Settings for every test.

Being here, this file also puts its folder on the path, so that tests can use the helpers beside it.
"""

import gc
import os
from importlib import metadata
from pathlib import Path

import equinox as eqx
import jax
import pytest

# Most programs here run for milliseconds and take seconds to compile, mostly in LLVM's optimiser and in the newer of
# XLA's two code generators for fused loops. Without either the suite needs less than half the processor time; with
# `XLA_FLAGS= pytest` it compiles as users do. XLA kills a process that names a flag it does not know, and later
# releases have but one generator. XLA reads the variable when the first device is asked for; workers and child
# processes inherit it.
_FLAGS = ["--xla_backend_optimization_level=0"]
if tuple(int(part) for part in metadata.version("jaxlib").split(".")[:2]) < (0, 11):
    _FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(_FLAGS))

# float64, because most oracles are checked to 1e-10 or better. Rank promotion raises, because an (n,) array
# that quietly meets an (h, n) one is how a wrong formula passes for a right one.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

MAPS = 20_000
"""Memory maps a process may hold at the end of a test file; Linux allows 65 530, and one file adds at most 7000."""


@pytest.fixture(autouse=True, scope="module")
def _free_compiled_programs():
    """A process that keeps a thousand compiled programs runs out of memory maps, and XLA crashes. Freeing them after
    every file would compile the common ones again and again."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > MAPS:
        eqx.clear_caches()
        jax.clear_caches()
        gc.collect()
