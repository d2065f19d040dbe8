from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.common import shadow_filesystem
from core.common.shadow_filesystem import link_tree, temporary_shadow
from core.files.file_names import find_offset_files


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for a place in memory; nobody said where temporary files go."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "memory"
    directory.mkdir()
    monkeypatch.setattr(shadow_filesystem, "_IN_MEMORY", str(directory))
    return directory


def test_a_shadow_lies_in_memory_and_goes_when_it_is_done(tmp_path: Path, memory: Path) -> None:
    with temporary_shadow(tmp_path, "plog-") as shadow:
        assert Path(shadow).parent == memory
        assert Path(shadow).stat().st_mode & 0o777 == 0o700
    assert not any(memory.iterdir())


def test_a_user_says_where_temporary_files_go(tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with temporary_shadow(tmp_path, "plog-") as shadow:
        assert Path(shadow).parent != memory


@pytest.mark.parametrize("name", ["large.log", "t-0/large.log"])
def test_a_log_whose_indexes_may_not_fit_into_memory_has_its_shadow_on_the_disk(
    tmp_path: Path, memory: Path, name: str
) -> None:
    place = os.statvfs(memory)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    with (tmp_path / name).open("wb") as file:
        file.truncate(60 * place.f_bavail * place.f_frsize)  # a hole, which takes nothing
    with temporary_shadow(tmp_path, "plog-") as shadow:
        assert Path(shadow).parent != memory


def test_a_system_without_a_place_in_memory(tmp_path: Path, memory: Path) -> None:
    memory.rmdir()
    with temporary_shadow(tmp_path, "plog-") as shadow:
        assert Path(shadow).is_dir()


def test_what_cant_be_opened_is_left_out_and_told(tmp_path: Path) -> None:
    directory, shadow = tmp_path / "t-0", tmp_path / "shadow"
    for folder in (directory, directory / "folder", shadow):
        folder.mkdir()
    (directory / "a.log").write_bytes(b"1")
    (directory / "link").symlink_to(directory / "a.log")
    (directory / "dangling").symlink_to(directory / "nowhere")
    (directory / "itself").symlink_to(directory / "itself")
    os.mkfifo(directory / "pipe")
    told = dict[str, int | None]()
    link_tree(directory, shadow, on_unreadable=lambda error, path: told.update({path.name: error.errno}), depth=0)
    assert sorted(entry.name for entry in shadow.iterdir()) == ["a.log", "link"]
    assert (shadow / "a.log").readlink() == directory / "a.log"
    assert sorted(told) == ["dangling", "folder", "itself", "pipe"]


def test_segments_that_come_while_a_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large folder is listed in parts: the first listing has segment 1190 and lacks 600, which was made before it."""
    directory, shadow = tmp_path / "t-0", tmp_path / "shadow"
    directory.mkdir()
    shadow.mkdir()
    names = [f"{offset:020d}.log" for offset in range(0, 1210, 10)]
    for name in (*names, "leader-epoch-checkpoint"):
        (directory / name).touch()
    late, scandir = [{names[60], names[-1]}], os.scandir

    def scan(path: Path) -> list[os.DirEntry[str]]:
        hidden = late.pop() if late else set()
        return [entry for entry in scandir(path) if entry.name not in hidden]

    monkeypatch.setattr(os, "scandir", scan)
    link_tree(directory, shadow, depth=0)
    monkeypatch.undo()
    assert sorted(entry.name for entry in shadow.iterdir()) == [*names[:-1], "leader-epoch-checkpoint"]
    late.append({names[60], names[-1]})
    monkeypatch.setattr(os, "scandir", scan)
    assert [offset for offset, _ in find_offset_files(directory, ".log")] == list(range(0, 1200, 10))
