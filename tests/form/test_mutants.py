"""The mutants of scripts/mutate fit the code: who moves a line moves its mutant with it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.mutants import ROOT, Mutant, areas, read_mutants

MUTANTS = [mutant for area in areas() for mutant in read_mutants(area)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.area}: {mutant.what}")
def test_a_mutants_line_occurs_in_its_file_once(mutant: Mutant) -> None:
    wrong = mutant.applied_to((ROOT / mutant.file).read_text())
    compile(wrong, mutant.file, "exec")
    assert mutant.line != mutant.becomes


@pytest.mark.parametrize("test", sorted({test for mutant in MUTANTS for test in mutant.tests}))
def test_the_tests_that_should_notice_are_there(test: str) -> None:
    path, *names = test.partition("[")[0].split("::")
    assert (ROOT / path).exists()
    text = (ROOT / path).read_text() if names else ""
    assert all(f"def {name}(" in text or f"class {name}" in text for name in names)


def test_each_mutant_has_a_sentence_of_its_own() -> None:
    assert [what for what, count in Counter((m.area, m.what) for m in MUTANTS).items() if count > 1] == []
