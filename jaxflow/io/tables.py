"""What numbers does a table of samples hold? Reads `.csv` and `.npy`, and refuses anything doubtful.

Nothing is promoted in silence: text is read at the run's precision, a binary array must already have it.
"""

import csv
from pathlib import Path

import numpy as np

from jaxflow.errors import InputError

MINIMUM_ROWS = 2


def read_table(path: Path, *, precision: str) -> np.ndarray:
    """Read the samples in `path`, one per row.

    Args:
        path: a `.csv` file (commas, at most one header line) or a `.npy` file of shape (n, d).
        precision: `float64` or `float32`, the dtype of the result.

    Returns:
        A finite array of shape (n, d) with n at least 2.

    Raises:
        InputError: naming the file, and the line and column at fault.
    """
    readers = {".csv": _read_csv, ".npy": _read_npy}
    if path.suffix not in readers:
        raise InputError(
            "unknown kind of table", where=str(path), got=path.suffix or "no ending", expected=".csv or .npy"
        )
    if not path.is_file():
        raise InputError(
            "the file does not exist",
            where=str(path),
            fix="give a path relative to the folder of the config file, or an absolute one",
        )
    table = readers[path.suffix](path, np.dtype(precision))
    if table.shape[0] < MINIMUM_ROWS or table.shape[1] == 0:
        raise InputError("too few samples", where=str(path), got=f"shape {table.shape}", expected="at least two rows")
    return table


def _read_csv(path: Path, dtype: np.dtype) -> np.ndarray:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error):
        raise InputError("the file is no plain text", where=str(path), expected="a .csv file") from None
    if not rows:
        raise InputError("the file is empty", where=str(path), expected="one sample per line")
    # A header is a first line without a single number; a line that mixes both is a mistake.
    if not any(_is_number(cell) for cell in rows[0][1]):
        rows = rows[1:]
    width = len(rows[0][1]) if rows else 0
    table = np.empty((len(rows), width), dtype)
    for index, (line, row) in enumerate(rows):
        if len(row) != width:
            raise InputError(
                "the rows differ in length",
                where=f"{path}, line {line}",
                got=f"{len(row)} columns",
                expected=f"{width} columns, as in the rows before",
            )
        for column, cell in enumerate(row):
            table[index, column] = _number(cell, dtype, where=f"{path}, line {line}, column {column + 1}")
    return table


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, dtype: np.dtype, *, where: str) -> np.floating:
    if not _is_number(cell):
        raise InputError("this cell is no number", where=where, got=repr(cell), expected="a number")
    with np.errstate(over="ignore"):
        value = dtype.type(cell)
    if not np.isfinite(value):
        raise InputError("this cell is not finite", where=where, got=cell.strip(), expected="a finite number")
    return value


def _read_npy(path: Path, dtype: np.dtype) -> np.ndarray:
    try:
        table = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(
            "the file is no plain NumPy array (Python objects are refused)",
            where=str(path),
            got=error,
            expected=f"an array of {dtype.name} written by numpy.save",
        ) from None
    if table.dtype != dtype:
        raise InputError(
            "the array does not have the precision of the run",
            where=str(path),
            got=str(table.dtype),
            expected=dtype.name,
            fix=_precision_fix(str(table.dtype), dtype.name),
        )
    if table.ndim != 2:
        raise InputError("the array must have two axes", where=str(path), got=f"shape {table.shape}", expected="(n, d)")
    bad = np.argwhere(~np.isfinite(table))
    if bad.size:
        row, column = bad[0]
        raise InputError(
            "the array holds a number that is not finite",
            where=f"{path}, row {row}, column {column} (counted from 0)",
            got=table[row, column],
            expected="finite numbers",
        )
    return table


def _precision_fix(found: str, wanted: str) -> str:
    convert = f"save the array as {wanted}"
    return f"pass `--precision {found}` or {convert}" if found in ("float32", "float64") else convert
