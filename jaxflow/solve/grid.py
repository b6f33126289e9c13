"""Where a fixed-step method steps, changes layer, and saves: a table made before anything is traced."""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import numpy as np

from jaxflow.errors import InputError


@final
class Grid(eqx.Module):
    """S blocks of steps, each ending in a saved time. Blocks have equal shape (m₁, m₂), filled up with steps of
    length zero, so that one compiled program serves any slice of a grid.

    Attributes:
        t, h: start and length of every step, (S, m₁, m₂).
        index: its number in the whole run, on which random weights key their noise.
        piece: the schedule's piece it lies in; `came_from`: the piece of the step before.
        ts: the saved times, (S,).
    """

    t: np.ndarray
    h: np.ndarray
    index: np.ndarray
    piece: np.ndarray
    came_from: np.ndarray
    ts: np.ndarray

    def __getitem__(self, blocks: slice) -> "Grid":
        parts = (self.t, self.h, self.index, self.piece, self.came_from, self.ts)
        return Grid(*(x[blocks] for x in parts))

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return int((self.h > 0).sum())


def make_grid(
    t0: float,
    t1: float,
    *,
    dt: float,
    edges: Sequence[float] = (),
    save_every: int | None = None,
    save_at: Sequence[float] | None = None,
) -> Grid:
    """Equal steps of at most dt on each stretch between layer changes (`edges`) and times in `save_at`, so that no
    step straddles either.

    Args:
        save_every: save after every so many steps (and at t1).
        save_at: save at these increasing times in (t0, t1]. Neither: save at t1 only.
    """
    inner = [e for e in edges if t0 < e < t1]
    breaks = np.unique(np.concatenate([[t0, t1], inner, [] if save_at is None else np.asarray(save_at, float)]))
    counts = np.maximum(1, np.ceil(np.diff(breaks) / dt - 1e-9)).astype(int)
    t = np.concatenate([a + (b - a) / k * np.arange(k) for a, b, k in zip(breaks[:-1], breaks[1:], counts)])
    h = np.repeat(np.diff(breaks) / counts, counts)
    ends = np.append(t[1:], t1)
    piece = np.asarray([piece_at(edges, t_k) for t_k in t])
    came_from = np.concatenate([piece[:1], piece[:-1]])
    if save_at is not None:
        last = np.searchsorted(ends, np.asarray(save_at, float) - 1e-12 * max(1.0, abs(t1)))
    else:
        last = np.arange((save_every or len(t)) - 1, len(t), save_every or len(t))
        last = np.append(last, len(t) - 1) if len(last) == 0 or last[-1] != len(t) - 1 else last
    return _in_blocks(t, h, piece, came_from, ends, last)


def piece_at(edges: Sequence[float], t: float) -> int:
    """The piece that acts from t on: each owns its left end, the last one both ends."""
    return int(np.searchsorted(np.asarray(edges[1:-1]), t, side="right"))


def _in_blocks(
    t: np.ndarray, h: np.ndarray, piece: np.ndarray, came_from: np.ndarray, ends: np.ndarray, last: np.ndarray
) -> Grid:
    """Steps last[s-1]+1 .. last[s] become block s, laid out as m₁ × m₂ ≈ square so that a gradient stores O(√steps)."""
    lengths = np.diff(np.concatenate([[-1], last]))
    m1 = int(np.ceil(np.sqrt(lengths.max())))
    m2 = int(np.ceil(lengths.max() / m1))
    start = np.concatenate([[0], last[:-1] + 1])
    offset = np.arange(m1 * m2)
    index = start[:, None] + np.minimum(offset, lengths[:, None] - 1)
    real = offset < lengths[:, None]
    filled = {
        "t": t[index],
        "h": np.where(real, h[index], 0.0),
        "index": index,
        "piece": piece[index],
        "came_from": np.where(real, came_from[index], piece[index]),
    }
    return Grid(**{name: x.reshape(len(last), m1, m2) for name, x in filled.items()}, ts=ends[last])


def check_times(
    t0: float,
    t1: float,
    *,
    dt: float | None,
    save_every: int | None,
    save_at: Sequence[float] | np.ndarray | None,
    edges: Sequence[float],
) -> None:
    """Refuse times that make no run, each with the name of the argument at fault."""
    if not (np.isfinite(t0) and np.isfinite(t1) and t1 > t0):
        raise InputError("must lie after t0", where="t1", got=f"t0={t0}, t1={t1}", expected="finite t0 < t1")
    if dt is not None and not 0 < dt <= t1 - t0:
        raise InputError("must be a step within the run", where="dt", got=dt, expected=f"0 < dt ≤ {t1 - t0:g}")
    if save_every is not None and save_at is not None:
        raise InputError("exclude each other", where="save_every, save_at", fix="give one of them")
    if save_every is not None and save_every < 1:
        raise InputError("must be at least 1", where="save_every", got=save_every)
    if save_at is not None:
        times = np.asarray(save_at, float)
        inside = times.ndim == 1 and times.size > 0 and t0 <= times[0] and times[-1] <= t1
        if not inside or not (np.diff(times) > 0).all():
            raise InputError(
                "must be increasing times within the run", where="save_at", got=times, expected=f"in [{t0:g}, {t1:g}]"
            )
    if edges and (t0 < edges[0] or t1 > edges[-1] * (1 + 1e-12)):
        raise InputError(
            "run beyond the schedule of layers",
            where="t0, t1",
            got=f"[{t0:g}, {t1:g}]",
            expected=f"within [{edges[0]:g}, {edges[-1]:g}]",
            fix="end the run there, or give the schedule more or longer layers",
        )
