"""The table of steps: every property that a run relies on, for any times that make a run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxflow.solve import make_grid

durations = st.lists(st.floats(0.05, 2.0), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(durations, st.floats(0.02, 0.5), st.integers(1, 7), st.floats(0, 0.9))
def test_steps_fill_the_run_and_straddle_nothing(lengths, dt, every, start):
    edges = np.concatenate([[0], np.cumsum(lengths)])
    t0, t1 = start * edges[-1], edges[-1]
    grid = make_grid(t0, t1, dt=dt, edges=edges.tolist(), save_every=every)
    real = grid.h > 0
    t, h, piece, came = grid.t[real], grid.h[real], grid.piece[real], grid.came_from[real]
    assert grid.steps == len(h)
    assert (h <= dt * (1 + 1e-9)).all()
    np.testing.assert_allclose(h.sum(), t1 - t0, rtol=1e-12)
    np.testing.assert_allclose(t[1:], t[:-1] + h[:-1], rtol=1e-12, atol=1e-12)
    assert t[0] == t0
    # Each step lies in the piece that owns its left end.
    assert (t >= edges[piece] - 1e-12).all()
    assert (t + h <= edges[piece + 1] + 1e-9).all()
    np.testing.assert_array_equal(came, np.concatenate([piece[:1], piece[:-1]]))
    np.testing.assert_array_equal(grid.index[real], np.arange(len(h)))
    # Blocks of `every` steps, the last one shorter, ending in the saved times.
    counts = real.sum((1, 2))
    assert (counts[:-1] == every).all()
    assert 1 <= counts[-1] <= every
    np.testing.assert_allclose(grid.ts, (t + h)[np.cumsum(counts) - 1], rtol=1e-12)
    assert grid.ts[-1] == t1


def test_equal_pieces_get_equal_steps():
    grid = make_grid(0.0, 1.0, dt=0.3, edges=(0.0, 0.5, 1.0))
    np.testing.assert_allclose(grid.h[grid.h > 0], 0.25)


@pytest.mark.parametrize("dt", [0.1, 0.07, 0.05])
def test_saved_times_are_met_exactly(dt):
    grid = make_grid(0.0, 1.0, dt=dt, edges=(0.0, 0.4, 1.0), save_at=[0.1, 0.35, 0.4, 0.9, 1.0])
    np.testing.assert_array_equal(grid.ts, [0.1, 0.35, 0.4, 0.9, 1.0])
    np.testing.assert_allclose(np.cumsum(grid.h.sum((1, 2))), grid.ts, rtol=1e-14)


def test_a_slice_of_a_grid_is_a_grid():
    grid = make_grid(0.0, 1.0, dt=0.1, save_every=2)
    part = grid[1:3]
    np.testing.assert_array_equal(part.ts, grid.ts[1:3])
    np.testing.assert_array_equal(part.index, grid.index[1:3])
    assert part.steps == 4
