"""Settings for every test.

Being here, this file also puts its folder on the path, so that tests can use the helpers beside it.
"""

import gc
from pathlib import Path

import equinox as eqx
import jax
import pytest

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
