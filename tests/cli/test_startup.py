"""Does help answer at once, without loading jax or matplotlib?"""

import subprocess
import sys

PROGRAM = """
import sys
from jaxflow.cli import main
try:
    main()
except SystemExit as stop:
    code = stop.code
heavy = {"jax", "matplotlib", "numpy", "msgspec", "diffrax"} & sys.modules.keys()
print(code, sorted(heavy), file=sys.stderr)
"""


def test_help_loads_nothing_heavy():
    for arguments in (["--help"], ["run", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert "Usage" in done.stdout
        assert done.stderr.splitlines()[-1] == "0 []"


def test_bench_refuses_what_it_cannot_run():
    """Without the peers it says how to install them; with them, which benchmarks there are."""
    done = subprocess.run(
        [sys.executable, "-c", "from jaxflow.cli import main; main()", "bench", "no_such_benchmark"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "[bench]" in done.stderr or "moment_ensemble" in done.stderr
