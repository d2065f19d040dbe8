"""Files that users ask for: whole under their name, whoever else writes there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.common import out_file
from core.common.errors import AccessError
from core.common.out_file import OutFile


def test_it_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after the rename would leave an empty file under the name."""
    synced: list[tuple[int, bool]] = []
    path = tmp_path / "out"
    monkeypatch.setattr(out_file, "sync_all", lambda fd: synced.append((os.fstat(fd).st_size, path.exists())))
    out = OutFile(path)
    out.file.write(b"whole")
    out.end(is_whole=True)
    assert synced == [(len(b"whole"), False)]


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
