from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem, access_error, copy_bytes
from core.common.path_alias import PathAlias
from core.common.salvaging_file import open_salvaging
from core.common.shadow_filesystem import ShadowFileSystem

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
    fd = file.fd
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_write_atomic_leaves_nothing_beside(tmp_path: Path) -> None:
    (tmp_path / "f.tmp").write_bytes(b"what a killed write left, much longer than what comes now")
    FS.write_atomic(tmp_path / "f", b"one")
    assert (tmp_path / "f").read_bytes() == b"one"
    FS.write_atomic(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("most", [1, 3, 4])
def test_a_disk_that_takes_a_part_is_given_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """As the system does when a signal comes, or room for a part is left only."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: write(fd, memoryview(data)[:most], position))
    file = FS.open_append(tmp_path / "f")
    for number, data in enumerate((b"0123456789", bytearray(b"abcdefghij"), memoryview(b"ABCDEFGHIJ"))):
        file.write_at(data, 10 * number)
    assert file.read_at(100, 0) == b"0123456789abcdefghijABCDEFGHIJ"


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


# --- holes


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """100 GiB, with a word in the middle."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(100 << 30)
        file.seek(50 << 30)
        file.write(b"word")
    return path


def test_holes_are_passed_over(sparse: Path) -> None:
    file = FS.open_read(sparse)
    found = file.next_data(0)
    assert (50 << 30) - (1 << 20) < found <= 50 << 30
    assert file.next_data(found) == found
    assert file.next_data((50 << 30) + (1 << 20)) == file.next_data(200 << 30) == 100 << 30
    file.close()
    with closing(open_salvaging(sparse)) as salvaging:
        assert (50 << 30) + 4 <= salvaging.data_end() < (50 << 30) + (1 << 20)


def test_a_copy_has_the_holes(sparse: Path, tmp_path: Path) -> None:
    file, out = FS.open_read(sparse), FS.open_append(tmp_path / "copy")
    assert copy_bytes(file, 12, 80 << 30, out, 5) == (80 << 30) - 7
    assert out.size() == (80 << 30) - 7
    expected = {0: b"\0" * 6, (50 << 30) - 7: b"word"}
    for position, data in expected.items():
        assert out.read_at(len(data), position) == data
        assert out.read_at(2, position + len(data)) == b"\0\0"
    assert (tmp_path / "copy").stat().st_blocks * 512 < 100 << 20
    file.close()
    out.close()


def test_a_shadow_copies_no_more_of_a_file_than_stays(sparse: Path, tmp_path: Path) -> None:
    directory, shadow = tmp_path / "directory", tmp_path / "shadow"
    for folder in (directory, shadow):
        folder.mkdir()
    index = directory / "0.index"
    sparse.rename(index)
    (shadow / "0.index").symlink_to(index)
    file = ShadowFileSystem(PathAlias(shadow, directory)).open_append(shadow / "0.index")
    file.truncate((3 << 20) + 5)
    assert (file.size(), index.stat().st_size) == ((3 << 20) + 5, 100 << 30)
    file.write_at(b"own", 0)
    assert file.read_at(3, 0) == b"own"
    assert FS.open_read(index).read_at(3, 0) == b"\0\0\0"
    file.close()
