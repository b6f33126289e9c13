"""Which tables are read, and how are the doubtful ones refused?"""

import numpy as np
import pytest

from jaxflow.errors import InputError
from jaxflow.io.tables import read_table

ROWS = np.array([[1.0, 2.5], [-3.0, 4e-3]])


@pytest.mark.parametrize("text", ["1,2.5\n-3, 4e-3\n", "x,y\n1,2.5\n-3,4e-3\n", "\ufeffx,y\n1,2.5\n\n-3,4e-3"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_csv_is_read_at_the_precision_of_the_run(tmp_path, text, precision):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    table = read_table(tmp_path / "t.csv", precision=precision)
    assert table.dtype == precision
    np.testing.assert_array_equal(table, ROWS.astype(precision))


def test_npy_is_read_as_it_is(tmp_path):
    np.save(tmp_path / "t.npy", ROWS)
    np.testing.assert_array_equal(read_table(tmp_path / "t.npy", precision="float64"), ROWS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("x,y\n", "too few samples"),
        ("1,2\n", "too few samples"),
        ("1,2\n3\n", r"line 2: the rows differ in length\n  got: 1 columns\n  expected: 2 columns"),
        ("1,2\n3,nan\n", "line 2, column 2: this cell is not finite"),
        ("a,b\n1,2\n-inf,3\n", "line 3, column 1: this cell is not finite"),
        ("1,2\n3,four\n", r"line 2, column 2: this cell is no number\n  got: 'four'"),
        ("1,b\n1,2\n", "line 1, column 2: this cell is no number"),
        ("1,2\n3,\n", "line 2, column 2"),
        ("1,2\n\n3,x\n", "line 3, column 2"),
    ],
)
def test_bad_csv_names_file_line_and_column(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=message) as raised:
        read_table(tmp_path / "t.csv", precision="float64")
    assert "t.csv" in str(raised.value)


def test_a_number_too_large_for_single_precision_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("1,2\n3,1e300\n")
    with pytest.raises(InputError, match="line 2, column 2: this cell is not finite"):
        read_table(tmp_path / "t.csv", precision="float32")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"two axes\n  got: shape \(3,\)"),
        (np.zeros((1, 3)), "too few"),
        (np.zeros((3, 0)), "too few"),
        (np.array([[1.0, 2.0], [3.0, np.inf]]), r"row 1, column 1 .*not finite"),
        (np.zeros((2, 2), np.float32), "pass `--precision float32` or save the array as float64"),
        (np.zeros((2, 2), int), "fix: save the array as float64"),
        (np.array([[None, 1], [2, 3]]), "Python objects are refused"),
    ],
)
def test_bad_npy_is_refused(tmp_path, array, message):
    np.save(tmp_path / "t.npy", array, allow_pickle=True)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "t.npy", precision="float64")


def test_double_precision_is_not_demoted(tmp_path):
    np.save(tmp_path / "t.npy", ROWS)
    with pytest.raises(InputError, match="pass `--precision float64` or save the array as float32"):
        read_table(tmp_path / "t.npy", precision="float32")


@pytest.mark.parametrize("name", ["missing.csv", "table.txt", "broken.npy"])
def test_other_files_are_refused(tmp_path, name):
    (tmp_path / "broken.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match=name):
        read_table(tmp_path / name, precision="float64")
