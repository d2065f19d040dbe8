from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem, access_error

FS = FileSystem()


def test_write_at_and_read_at(tmp_path: Path) -> None:
    file = FS.open_append(tmp_path / "f")
    file.write_at(b"hello", 3)
    assert file.read_at(100, 0) == b"\0\0\0hello"
    assert file.size() == 8
    file.truncate(4)
    assert file.read_at(100, 2) == b"\0h"


def test_a_deleted_file_is_readable_as_long_as_it_is_held(tmp_path: Path) -> None:
    file = FS.open_append(tmp_path / "f")
    file.write_at(b"still here", 0)
    FS.unlink(tmp_path / "f")
    assert file.read_at(10, 0) == b"still here"


def test_a_file_closes_when_nobody_holds_it(tmp_path: Path) -> None:
    file = FS.open_append(tmp_path / "f")
    fd = file.fd
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_write_atomic_leaves_nothing_beside(tmp_path: Path) -> None:
    FS.write_atomic(tmp_path / "f", b"one")
    FS.write_atomic(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_remove_tree_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("x")
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "sub" / "f").write_text("x")
    (inside / "link").symlink_to(outside)
    FS.remove_tree(inside)
    assert not inside.exists()
    assert (outside / "keep").exists()


def test_access_error_says_what_and_where(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        FS.open_read(tmp_path / "nothing")
    assert str(access_error(caught.value, tmp_path / "nothing", "read")) == (
        f"could not read {tmp_path / 'nothing'}: no such file or directory"
    )
