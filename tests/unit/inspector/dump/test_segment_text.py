"""The dump's two ways, record by record and by columns, are one text."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import pytest

from core.common.errors import UsageError
from core.inspector.check.findings import Finding
from core.inspector.dump import segment_batches
from core.inspector.dump.dump_options import DumpOptions
from core.inspector.dump.file_dump import find_dumps
from core.inspector.dump.hex_dump import hex_fields
from core.inspector.dump.segment_batches import SegmentBatches
from core.inspector.dump.segment_text import SegmentText
from core.inspector.dump.value_format import parse_value_format
from tests.support.damage import plant, write_log
from tests.support.golden import GOLDEN, directories
from tests.support.logs import append, make_batch, open_log

OPTIONS = [
    DumpOptions(with_records=True, with_data=True),
    DumpOptions(with_records=True),
    DumpOptions(with_records=True, with_data=True, start_offset=13),
]


def text(path: Path, options: DumpOptions) -> tuple[bytes, list[str]]:
    findings: list[Finding] = []
    return b"".join(SegmentText(path, options, findings).pieces()), [str(f) for f in findings]


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


def test_what_comes_before_a_frame_without_a_header_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame at 688 leads into the next batch, to zeros, where Kafka's tool breaks off."""
    data = bytearray((GOLDEN / "multisegment" / "00000000000000000118.log").read_bytes())
    data[696:700] = (800).to_bytes(4, "big")
    data[1500:1540] = bytes(40)
    log = tmp_path / "00000000000000000118.log"
    log.write_bytes(data)
    for small_bytes in (segment_batches._SMALL_BYTES, -1):
        monkeypatch.setattr(segment_batches, "_SMALL_BYTES", small_bytes)
        lines = text(log, OPTIONS[0])[0].splitlines()
        assert b" position: 688 " in lines[-1]
        assert lines[-1].endswith(b" isvalid: false")


def test_batches_alone_do_not_load_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer to load than the lines of a few thousand batches to be made."""
    monkeypatch.setattr(segment_batches, "_SMALL_BYTES", -1)
    monkeypatch.setitem(sys.modules, "core.inspector.dump.kafka_columns", None)
    monkeypatch.delattr("core.inspector.dump.kafka_columns", raising=False)
    found, _ = text(GOLDEN / "multisegment" / "00000000000000000000.log", DumpOptions())
    assert found.count(b"\nbaseOffset") > 1


def test_a_seek_through_the_indexes_finds_what_reading_all_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in sorted((GOLDEN / "multisegment").glob("*.log")):
        for offset in range(int(path.stem), int(path.stem) + 120, 7):
            options = DumpOptions(with_records=True, with_data=True, start_offset=offset)
            sought = text(path, options)
            with monkeypatch.context() as patch:
                patch.setattr(SegmentBatches, "start_position", lambda _self: 0)
                assert text(path, options) == sought
    last = SegmentBatches(path, DumpOptions(start_offset=10**6), [], is_for_text=True)
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


def test_a_folder_is_not_listed_again_for_each_sound_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 segments took ten minutes."""
    log = open_log(tmp_path / "t-0", segment_bytes=140)
    for _ in range(12):
        append(log, make_batch(b"x" * 60))
    log.close()
    scandir, listed = os.scandir, []
    monkeypatch.setattr(os, "scandir", lambda *path: (listed.append(path), scandir(*path))[1])
    dumps = list(find_dumps(tmp_path / "t-0", DumpOptions()))
    before = len(listed)
    for dump in dumps:
        assert list(dump.kafka_text())
        assert list(dump.hex_fields()) or not dump.path.stat().st_size
    assert len([dump for dump in dumps if dump.is_log]) == 12
    assert len(listed) == before
