"""What outlives a process is used by this product and by the one before its last change, in both orders:
`scripts/exchange.py`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.exchange import CHECKS, ROOT, WITH_SPARK, Check, Commit, exchange, trees, undone_recovery

Commits = tuple[Commit, Commit, Path]


PRODUCT = ("cli", "core", "plog")


@pytest.fixture(scope="module")
def commits() -> Iterator[Commits]:
    """Later commits, of tests or documents, have the same product as this one."""
    try:
        command = ["git", "rev-list", "-1", "HEAD", "--", *PRODUCT]
        last = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
        with trees(f"{last}^") as found:
            yield found
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("the commit before the product's last change is not there")


@pytest.mark.parametrize("check", [*CHECKS, *WITH_SPARK], ids=lambda check: str(check.__name__))
def test_each_commit_uses_what_the_other_left(check: Check, commits: Commits) -> None:
    assert exchange(*commits, (check,)) == []


def test_a_commit_that_looks_for_another_file_is_found(commits: Commits) -> None:
    (file,) = commits[0].tree.glob("core/*/recovery_journal.py")
    text = file.read_text()
    file.write_text(text.replace('JOURNAL = "recovery-journal"', 'JOURNAL = "journal-of-recovery"'))
    assert file.read_text() != text
    commits[0].stop()  # its next process has the other text
    place = commits[2] / "looks-for-another"
    place.mkdir()
    assert len(exchange(*commits[:2], place, (undone_recovery,))) == 2
    file.write_text(text)
    commits[0].stop()
