"""How do results become picture files? Each figure is saved as `.png` to look at and `.pdf` to print."""

from typing import Any

import numpy as np

from jaxflow.errors import InputError
from jaxflow.experiments.schema import Experiment, kind_of
from jaxflow.io.atomic import replacing
from jaxflow.io.rundir import RunDirectory

DOTS_PER_INCH = 160
FRAMES_PER_SECOND = 20


def draw(
    run_dir: RunDirectory, experiment: Experiment, *, arrays: dict[str, np.ndarray], summary: dict[str, Any]
) -> list[str]:
    """Draw the figures of a run into its directory, and return their names."""
    # Matplotlib takes a moment to load, and only finished runs need it.
    from jaxflow.viz import figures

    run_dir.figures.mkdir(exist_ok=True)
    drawn = figures(kind_of(experiment), arrays, summary, experiment)
    for name, figure in drawn.items():
        with replacing(run_dir.figures / f"{name}.png") as path:
            figure.savefig(path, format="png", dpi=DOTS_PER_INCH)
        with replacing(run_dir.figures / f"{name}.pdf") as path:
            # Without a date, the same results give the same file.
            figure.savefig(path, format="pdf", metadata={"CreationDate": None})
    return list(drawn)


def animate(run_dir: RunDirectory, experiment: Experiment, *, arrays: dict[str, np.ndarray]) -> list[str]:
    """Draw the films of a run into its directory as `.gif`, and return their names.

    Raises:
        InputError: runs of this kind have none.
    """
    from matplotlib.animation import PillowWriter

    from jaxflow.viz import animations

    films = animations(kind_of(experiment), arrays)
    if not films:
        raise InputError(
            "there is no film of this run",
            where="--animate",
            got=f"kind {kind_of(experiment)}, d = {arrays['mean'].shape[-1]}" if "mean" in arrays else "",
            expected='a run of kind "steer" in two or more dimensions',
            fix="leave out --animate",
        )
    run_dir.figures.mkdir(exist_ok=True)
    for name, film in films.items():
        with replacing(run_dir.figures / f"{name}.gif") as path:
            # The writer tells the format by the ending, which a temporary file has not.
            gif = path.with_suffix(".gif")
            film.save(gif, writer=PillowWriter(fps=FRAMES_PER_SECOND))
            gif.replace(path)
    return list(films)
