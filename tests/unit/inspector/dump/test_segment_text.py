"""The dump's two ways, record by record and by columns, are one text; so are one process and several."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from core.common.errors import UsageError
from core.inspector.dump import segment_batches, segment_text
from core.inspector.dump.dump_options import DumpOptions
from core.inspector.dump.file_dump import find_dumps
from core.inspector.dump.hex_dump import hex_fields
from core.inspector.dump.parallel_text import Turn, write_in_turns
from core.inspector.dump.segment_batches import SegmentBatches
from core.inspector.dump.segment_text import SegmentText
from core.inspector.dump.value_format import parse_value_format
from tests.support.damage import plant, write_log
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, directories

OPTIONS = [
    DumpOptions(with_records=True, with_data=True),
    DumpOptions(with_records=True),
    DumpOptions(with_records=True, with_data=True, start_offset=13),
]


def text(path: Path, options: DumpOptions) -> tuple[bytes, list[str]]:
    dump = SegmentText(path, options)
    return b"".join(dump.pieces()), [str(f) for f in dump.findings]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    write_log(tmp_path / "t-0", Random(5), 40)
    plant(tmp_path / "t-0", Random(11))  # where process 0 passes over what is damaged
    return tmp_path / "t-0"


def every_log(damaged: Path) -> list[Path]:
    return sorted([*(p for d in directories() for p in d.glob("*.log")), *damaged.glob("*.log")])


@pytest.mark.parametrize("options", OPTIONS)
def test_columns_and_records_make_one_text(
    damaged: Path, options: DumpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = every_log(damaged)
    by_record = [text(path, options) for path in paths]
    monkeypatch.setattr(segment_batches, "_SMALL_BYTES", -1)
    assert [text(path, options) for path in paths] == by_record


@pytest.mark.parametrize(("window_bytes", "first"), [(100, 0), (5000, 1)])
def test_several_processes_make_one_text(
    damaged: Path, window_bytes: int, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the damaged log, and of every 20th of Kafka's."""
    options = OPTIONS[window_bytes % 3]
    paths = sorted({*every_log(damaged)[first::20], *damaged.glob("*.log")})
    expected = [text(path, options) for path in paths]
    monkeypatch.setattr(segment_batches, "_SMALL_BYTES", -1)
    monkeypatch.setattr(segment_text, "_WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(segment_text, "_COMPRESSED_WEIGHT", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2}, raising=False)
    for path, (whole, findings) in zip(paths, expected, strict=True):
        out = tmp_path / "out"
        dump = SegmentText(path, options)
        with out.open("wb") as file:
            dump.write(file.fileno())
        assert out.read_bytes() == whole, path
        assert sorted(str(f) for f in dump.findings) == sorted(findings)


def test_batches_alone_do_not_load_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer to load than the lines of a few thousand batches to be made."""
    monkeypatch.setattr(segment_batches, "_SMALL_BYTES", -1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1}, raising=False)
    monkeypatch.setitem(sys.modules, "core.inspector.dump.kafka_columns", None)
    monkeypatch.delattr("core.inspector.dump.kafka_columns", raising=False)
    dump = SegmentText(GOLDEN / "multisegment" / "00000000000000000000.log", DumpOptions())
    with (tmp_path / "out").open("wb") as file:
        dump.write(file.fileno())
    assert (tmp_path / "out").read_bytes().count(b"\nbaseOffset") > 1


def test_a_seek_through_the_indexes_finds_what_reading_all_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in sorted((GOLDEN / "multisegment").glob("*.log")):
        for offset in range(int(path.stem), int(path.stem) + 120, 7):
            options = DumpOptions(with_records=True, with_data=True, start_offset=offset)
            sought = text(path, options)
            with monkeypatch.context() as patch:
                patch.setattr(SegmentBatches, "start_position", lambda _self: 0)
                assert text(path, options) == sought
    last = SegmentBatches(path, DumpOptions(start_offset=10**6), is_for_text=True)
    assert last.start_position() > 0, "it does not begin at the beginning"


def test_a_wrong_index_misleads_nobody(tmp_path: Path) -> None:
    for path in (GOLDEN / "multisegment").iterdir():
        content = path.read_bytes()
        (tmp_path / path.name).write_bytes(b"\0\0\0\5" * (len(content) // 4) if "index" in path.suffix else content)
    options = DumpOptions(with_records=True, start_offset=60)
    log = "00000000000000000000.log"
    assert text(tmp_path / log, options)[0] == text(GOLDEN / "multisegment" / log, options)[0]


def test_hex_shows_every_byte_once() -> None:
    for dump in (dump for directory in directories() for dump in find_dumps(directory, DumpOptions())):
        whole = dump.path.read_bytes()
        position = 0
        for field in hex_fields(dump.path, dump.kind, []):
            if field.position < 0:
                continue
            if field.name == "damaged":
                position = len(whole)
                break
            assert field.position == position, dump.path
            assert whole[position : position + len(field.data)] == field.data, dump.path
            position += len(field.data)
        assert position == len(whole), dump.path


def test_formats_of_keys_and_values() -> None:
    cases: list[tuple[str, bytes | None, object]] = [
        ("utf8", b"abc", "abc"),
        ("utf8", b"\xff", {"base64": "/w=="}),
        ("utf8", None, None),
        ("hex", b"\x01\xff", "01ff"),
        ("base64", b"\xff", "/w=="),
        ("json", b'{"a": [1]}', {"a": [1]}),
        ("json", b"no json", "no json"),
        ("int64be", (-5).to_bytes(8, "big", signed=True), -5),
        ("int64be", b"short", "short"),
        ("struct:>hi", b"\0\1\0\0\0\2", [1, 2]),
        ("builtins:len", b"four", 4),
    ]
    for format_, data, expected in cases:
        assert parse_value_format(format_)(data) == expected, format_
    for wrong in ("utf9", "struct:zz", "no_such_module_here:f", "json:nothing_there"):
        with pytest.raises(UsageError):
            parse_value_format(wrong)


# --- turns


@for_each("workers, last", [(1, 7), (2, 0), (2, 99), (5, 1), (5, 7), (5, 98), (5, 100)])
def test_turns_are_kept(tmp_path: Path, workers: int, last: int) -> None:
    """From turn `last` on one worker writes all, and the others make what nobody should see."""
    made = []

    def turns_of(number: int) -> Iterator[Turn]:
        for n in range(number, 100 + workers, workers):
            made.append(n)
            yield Turn([b"%d " % n, b"\n"] * (n % 7) if n <= last else [b"wrong"], keeps_turn=n == last)
            if n == last:
                yield from (Turn([b"%d " % n, b"\n"] * (n % 7), keeps_turn=True) for n in range(last + 1, 100))
                return

    with (tmp_path / "out").open("wb") as file:
        outcomes = write_in_turns(file.fileno(), turns_of, workers, lambda: (os.getpid(), made[:]))
    assert (tmp_path / "out").read_bytes() == b"".join(b"%d \n" % n * (n % 7) for n in range(max(100, last + 1)))
    assert len({pid for pid, _ in outcomes}) == workers
    assert sorted(n for _, mine in outcomes for n in mine) == list(range(last + 1)), "what was made and written"


@for_each("bad", [0, 1, 7, 99])
def test_what_a_worker_raises_is_raised_here(tmp_path: Path, bad: int) -> None:
    def turns_of(number: int) -> Iterator[Turn]:
        for n in range(number, 100, 3):
            if n == bad:
                raise LookupError(n)
            yield Turn([b"%d\n" % n])

    with (tmp_path / "out").open("wb") as file, pytest.raises(LookupError):
        write_in_turns(file.fileno(), turns_of, 3, lambda: None)
    written = (tmp_path / "out").read_bytes()
    assert written == b"".join(b"%d\n" % n for n in range(len(written.splitlines())))


def test_a_reader_that_goes_away() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        write_in_turns(writing, lambda _number: (Turn([b"x" * 1000]) for _ in range(25)), 2, lambda: None)
    os.close(writing)
