"""Files that users ask for: whole under their name, whoever else writes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.common.errors import AccessError
from core.common.out_file import OutFile


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    first = OutFile(path)
    first.file.write(b"whole")
    with pytest.raises(AccessError, match="another process is writing it"):
        OutFile(path)
    first.end(is_whole=True)
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_next_run_may_write_it(tmp_path: Path, is_whole: bool) -> None:
    path = tmp_path / "out"
    for text in (b"a longer text of the first run", b"second"):
        out = OutFile(path)
        out.file.write(text)
        out.end(is_whole=is_whole)
    assert (path if is_whole else tmp_path / "out.partial").read_bytes() == b"second"
