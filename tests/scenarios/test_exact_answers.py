"""The checks behind `jaxflow verify` pass, are named once, and can fail."""

from dataclasses import replace

import pytest

from jaxflow.scenarios import checks


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
def test_the_exact_answer_is_reproduced(check):
    result = check.run()
    assert result.passed, result


def test_names_are_unique_and_every_check_says_its_source():
    names = [check.name for check in checks()]
    assert len(set(names)) == len(names)
    assert all(check.source and check.statement.endswith((".", ")")) for check in checks())


def test_a_wrong_answer_fails():
    check = next(check for check in checks() if check.name == "tokens_dirac_energy")
    assert not replace(check, exact=check.exact + 1e-12).run().passed


def test_a_nan_fails():
    check = next(check for check in checks() if check.name == "tokens_dirac_energy")
    assert not replace(check, compute=lambda: float("nan")).run().passed
