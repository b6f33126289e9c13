"""W₂ along two curves: one exact distance for every time."""

import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from jaxflow.errors import InputError
from jaxflow.geometry import Sphere
from jaxflow.measures import Cloud
from jaxflow.transport import wasserstein_clouds, wasserstein_path


def curve(seed, n, weighted):
    points = jnp.asarray(np.stack([oracles.unit_rows(n, 3, seed=10 * seed + k) for k in range(4)]))
    if not weighted:
        return Cloud(points)
    return Cloud(points, jnp.log(jnp.broadcast_to(jnp.asarray(oracles.weights(n, seed=seed)), (4, n))))


@pytest.mark.parametrize("weighted", [False, True])
def test_every_time_has_its_own_distance(weighted):
    first, second = curve(1, 5, weighted), curve(2, 5, weighted)
    found = wasserstein_path(first, second, geometry=Sphere())
    assert found.shape == (4,)
    for k in range(4):
        x, y = (Cloud(c.points[k], c.log_weights[k] if weighted else None) for c in (first, second))
        assert found[k] == wasserstein_clouds(x, y, geometry=Sphere())
    assert len(set(found.tolist())) == 4
    # Chords are shorter than arcs.
    assert (wasserstein_path(first, second) < found).all()


@pytest.mark.parametrize("bad", [Cloud(jnp.eye(3)), Cloud(jnp.ones((3, 5, 3)))])
def test_curves_over_other_times_are_refused(bad):
    with pytest.raises(InputError, match=r"first, second: must be curves over the same times"):
        wasserstein_path(curve(1, 5, False), bad)
