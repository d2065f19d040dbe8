"""Files that are read past their bad sectors: every byte that the disk gives, and no other."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import UnreadableFileError
from core.common.filesystem import File
from core.common.salvaging_file import SalvagingFile, UnreadableRange, open_salvaging, read_small_file
from tests.support.bad_disk import BadFile, break_disk, refuse

SIZE = 20_000
CONTENT = bytes(1 + number % 251 for number in range(SIZE))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "file"
    found.write_bytes(CONTENT)
    return found


def salvaging(path: Path, *bad: int, page: int = 4096) -> tuple[SalvagingFile, BadFile]:
    inner = BadFile(path, os.open(path, os.O_RDONLY), bad, page)
    return SalvagingFile(inner), inner


def expected(position: int, size: int, bad: list[tuple[int, int]]) -> bytes:
    """Byte by byte."""
    return bytes(
        0 if any(start <= at < end for start, end in bad) else CONTENT[at]
        for at in range(position, min(position + size, SIZE))
    )


def test_a_sound_file_is_read_in_one(path: Path) -> None:
    file, inner = salvaging(path)
    assert file.read_at(SIZE, 0) == CONTENT
    assert file.read_at(100, SIZE - 10) == CONTENT[-10:]
    assert inner.asked == [0, SIZE - 10]
    assert file.unreadable == []


@pytest.mark.parametrize(
    ("at", "page", "bad"),
    [(5000, 4096, (4096, 8192)), (5000, 512, (4608, 5120)), (SIZE - 1, 4096, (16384, SIZE))],
    ids=["a page", "a sector", "the last bytes"],
)
def test_what_is_bad_is_zeros_and_all_else_is_there(path: Path, at: int, page: int, bad: tuple[int, int]) -> None:
    file, _ = salvaging(path, at, page=page)
    assert file.read_at(SIZE, 0) == expected(0, SIZE, [bad])
    assert file.unreadable == [UnreadableRange(*bad, errno.EIO)]
    assert file.unreadable[0].reason == "input/output error (errno 5)"


def test_what_is_known_to_be_bad_is_not_asked_for_again(path: Path) -> None:
    file, inner = salvaging(path, 5000)
    file.read_at(SIZE, 0)
    inner.asked.clear()
    assert file.read_at(2000, 4500) == bytes(2000)
    assert inner.asked == []


def test_parts_of_a_range(path: Path) -> None:
    file, _ = salvaging(path, 4096, 17000)
    file.read_at(SIZE, 0)
    assert file.unreadable_in(0, 4096) == []
    assert file.unreadable_in(5000, 17000) == [
        UnreadableRange(5000, 8192, errno.EIO),
        UnreadableRange(16384, 17000, errno.EIO),
    ]


@given(
    bad=st.lists(st.integers(0, SIZE - 1), max_size=5),
    page=st.sampled_from([512, 4096]),
    reads=st.lists(st.tuples(st.integers(0, SIZE + 10), st.integers(1, SIZE)), min_size=1, max_size=5),
)
def test_any_reads_of_any_bad_disk(
    tmp_path_factory: pytest.TempPathFactory, bad: list[int], page: int, reads: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(CONTENT)
    file, _ = salvaging(path, *bad, page=page)
    ranges = [(position // page * page, position // page * page + page) for position in bad]
    for position, size in reads:
        assert file.read_at(size, position) == expected(position, size, ranges)
    assert all(before.end < after.position for before, after in zip(file.unreadable, file.unreadable[1:], strict=False))
    file.close()


def test_what_is_no_bad_sector_is_an_error(path: Path) -> None:
    class Detached(File):
        def read_at(self, size: int, position: int) -> bytes:
            raise OSError(errno.EBADF, "bad file descriptor")

    with pytest.raises(OSError, match="bad file descriptor"):
        SalvagingFile(Detached(path, os.open(path, os.O_RDONLY))).read_at(10, 0)


# --- whole files


def test_a_small_file_is_all_or_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_small_file(path) == CONTENT
    break_disk(monkeypatch, {path: [9000]})
    with pytest.raises(UnreadableFileError) as raised:
        read_small_file(path)
    assert (raised.value.position, raised.value.errno, raised.value.path) == (8192, errno.EIO, str(path))
    assert str(raised.value) == f"could not read {path} at position 8192: input/output error (errno 5)"


def test_a_file_that_is_too_large_to_be_small(path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="20000 bytes, where 100 are expected at most"):
        read_small_file(path, 100)


def test_what_is_there_but_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "secret").write_text("x")
    refuse(monkeypatch, tmp_path / "secret")
    for name, reason in {
        "pipe": "is a named pipe, no regular file",
        "folder": "is a directory",
        "dangling": "a link to nowhere, which is not there",
        "loop": "too many levels of symbolic links",
        "secret": "permission denied",
    }.items():
        with pytest.raises(UnreadableFileError, match=reason):
            read_small_file(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_small_file(tmp_path / "none")
    with pytest.raises(OSError, match="named pipe"):
        open_salvaging(tmp_path / "pipe")
