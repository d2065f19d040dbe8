"""A disk without room, and places that may not be written: what, where and a hint; what was there stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.plog_forks import PlogForks
from tests.support.server import call_plog

FORMATS = ["value", "envelope", r"%o %s\n", "arrow", "parquet"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("disks") / "data"
    ok("produce", "t", "--data-dir", str(path), stdin=b"".join(b"%d\n" % n for n in range(20_000)))
    return str(path)


@pytest.fixture
def refused(forks: PlogForks, tmp_path: Path) -> Callable[..., str]:
    """Runs a command that finds no room for a file of more than 20 KB. Gives what it says."""

    def call(*arguments: str) -> str:
        said = tmp_path / "said"
        code = forks.call(*arguments, stdin="/dev/null", stdout="/dev/null", stderr=str(said), largest_file=20_000)
        assert code == 3, said.read_text()
        return said.read_text()

    return call


@for_each("format_", FORMATS)
def test_a_file_that_has_no_room_leaves_what_was_there(
    format_: str, data: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_text("of before")
    command = ["consume", "t", "--format", format_, "--out", str(out), "--data-dir", data]
    said = refused(*command)
    assert f"error: could not write {out}: file too large" in said
    assert "hint: " in said
    assert out.read_text() == "of before"
    partial = tmp_path / "out.partial"
    assert partial.exists() is (format_ != "parquet"), "a Parquet file without its end can't be read"
    assert (f"the records so far are in {partial}" in said) is partial.exists()
    ok(*command)
    assert out.read_bytes() != b"of before"
    assert not partial.exists()


@for_each("format_", FORMATS)
def test_a_device_is_written_directly(format_: str, data: str, forks: PlogForks, tmp_path: Path) -> None:
    full = call_plog("consume", "t", "--format", format_, "--out", "/dev/full", "--data-dir", data)
    assert full.returncode == 3
    assert b"could not write /dev/full: no space left on device" in full.stderr
    command = ["consume", "t", "--format", format_, "--out", "/dev/stdout", "--data-dir", data]
    out = tmp_path / "stdout"
    assert forks.call(*command, stdin="/dev/null", stdout=str(out), stderr="/dev/null") == 0
    assert out.stat().st_size > 20_000


def test_a_link_stays_and_what_it_leads_to_keeps_its_mode(data: str, tmp_path: Path) -> None:
    out, link = tmp_path / "out", tmp_path / "link"
    out.write_text("of before")
    out.chmod(0o600)
    link.symlink_to(out)
    ok("consume", "t", "--max-messages", "1", "--out", str(link), "--data-dir", data)
    assert link.is_symlink()
    assert out.read_text() == "0\n"
    assert out.stat().st_mode & 0o777 == 0o600


def test_places_that_are_none(data: str, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for out, problem in (
        (tmp_path, "is a directory"),
        (tmp_path / "none" / "out", "no such file or directory\nhint: make its folder first"),
        (loop, "too many levels of symbolic links\nhint: a symbolic link leads back to itself"),
        (tmp_path / ("x" * 300), "file name too long"),
    ):
        for command in (["consume", "t", "--data-dir", data, "--out"], ["stats", f"{data}/t-0", "--html"]):
            done = call_plog(*command, str(out))
            assert done.returncode == 3
            assert f"could not write {out}: {problem}" in done.stderr.decode()
    for command in (["consume", "t"], ["topic", "create", "t"]):
        done = call_plog(*command, "--data-dir", str(loop))
        assert done.returncode == 3
        assert b"too many levels of symbolic links" in done.stderr
    assert call_plog("recover", str(loop)).returncode == 3


def test_a_run_that_never_began_leaves_no_file(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert call_plog("consume", "no-such-topic", "--out", str(out), "--data-dir", data).returncode == 1
    assert call_plog("consume", "t", "--format", "%q", "--out", str(out), "--data-dir", data).returncode == 2
    assert not list(tmp_path.iterdir())


def test_a_full_disk_below_an_embedded_writer(refused: Callable[..., str], tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.write_bytes(b"x" * 100 + b"\n" + b"y" * 50_000 + b"\n")
    said = refused("produce", "t", str(records), "--data-dir", str(tmp_path / "data"))
    assert f"could not write to {tmp_path}/data/t-0: file too large" in said
    assert "hint: a file may not get that large there" in said
    ok("verify", str(tmp_path / "data"))
