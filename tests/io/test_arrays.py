"""Do arrays come back as they went out, and is a file never half written?"""

import numpy as np
import pytest

from jaxflow.errors import InputError
from jaxflow.io.arrays import load_arrays, save_arrays
from jaxflow.io.atomic import replacing


def test_arrays_and_metadata_survive_the_round_trip(tmp_path):
    arrays = {
        "observables.energy": np.linspace(0, 1, 5),
        "points": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "key": np.array([1, 2], np.uint32),
        "step": np.array(7),
        "empty": np.zeros((0, 3)),
    }
    save_arrays(tmp_path / "a.safetensors", arrays, metadata={"done": "3"})
    found, metadata = load_arrays(tmp_path / "a.safetensors")
    assert metadata == {"done": "3"}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [None, b"no arrays"])
def test_a_bad_file_is_named(tmp_path, content):
    path = tmp_path / "bad.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.safetensors"):
        load_arrays(path)
