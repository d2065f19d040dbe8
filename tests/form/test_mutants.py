"""The mutants of scripts/mutate fit the code: who moves a line moves its mutant with it."""

from __future__ import annotations

from collections import Counter

from tests.support.mutants import ROOT, areas, read_mutants

MUTANTS = [mutant for area in areas() for mutant in read_mutants(area)]


def test_each_mutants_line_occurs_in_its_file_once() -> None:
    wrong = []
    for mutant in MUTANTS:
        try:
            compile(mutant.applied_to((ROOT / mutant.file).read_text()), mutant.file, "exec")
        except (OSError, SyntaxError, ValueError) as error:
            wrong.append(f"{mutant.area}: {mutant.what}: {error}")
    assert wrong == []
    assert [mutant.what for mutant in MUTANTS if mutant.line == mutant.becomes] == []


def test_the_tests_that_should_notice_are_there() -> None:
    missing = []
    for test in sorted({test for mutant in MUTANTS for test in mutant.tests}):
        path, *names = test.partition("[")[0].split("::")
        text = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
        if not (ROOT / path).exists() or not all(f"def {n}(" in text or f"class {n}" in text for n in names):
            missing.append(test)
    assert missing == []


def test_each_mutant_has_a_sentence_of_its_own() -> None:
    assert [what for what, count in Counter((m.area, m.what) for m in MUTANTS).items() if count > 1] == []
