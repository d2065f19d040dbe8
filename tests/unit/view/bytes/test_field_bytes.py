"""Bytes with the field under each: what docs/format and a real consumer say of them, and `dump-segment --hex` too."""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import core.view.bytes.field_bytes
from core.cluster.image.metadata_log import read_metadata_image
from core.common.errors import AccessError, CorruptRecordError, UsageError
from core.forensics.batch_scanner import FIELDS
from core.forensics.damage import DamageKind
from core.inspector.check.file_kind import FileKind, kind_of
from core.inspector.dump.dump_options import DumpOptions
from core.inspector.dump.entry_fields import ENTRY_LAYOUTS
from core.inspector.dump.field_span import value_text
from core.inspector.dump.file_dump import find_dumps
from core.records.compression import CompressionType
from core.records.legacy_message_set import build_message, build_wrapper
from core.records.record import Record
from core.view.bytes.field_bytes import FieldBytes, FieldSource, ReadBytes, parse_needles
from core.view.bytes.field_explanations import EXPLANATIONS, PAGES, Part, explain, explain_damage
from core.view.bytes.field_groups import Field
from tests.support.bad_disk import break_disk
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA, GoldenCase, golden_cases
from tests.support.logs import NOW, make_batch

ROOT = SAMPLE_DATA.parent
LOG = SAMPLE_DATA / "partition" / "txn_multisegment-0" / "00000000000000000000.log"
SECURED = GOLDEN.parent / "secured" / "__cluster_metadata-0" / "00000000000000000000.log"
CODECS = ("none_java", "gzip_java", "snappy_rdkafka", "lz4_java", "zstd_rdkafka")
READ_AS_RECORDS = [
    case
    for case in golden_cases()
    if case.name in ("headers", "nulls", "txn_aborted", "compacted_zstd", "logappendtime_lz4", "mixed_v0_v1_v2")
    or case.name in [f"codec_{codec}" for codec in CODECS]
    or re.fullmatch(r"v[01]_(none|gzip|snappy|lz4)_(java|compacted)", case.name)
]
MOST_BYTES = 45_000


def small_files(*, every: int = 1) -> list[Path]:
    """Logs of the sample data, and of one after the other of the folders that Kafka wrote; a few files of each other
    kind.
    """
    files = sorted(SAMPLE_DATA.rglob("*.log")) + sorted(GOLDEN.glob("*/*.log"))[::every]
    others = [LOG.parent, GOLDEN / "_root", GOLDEN / "__cluster_metadata-0", GOLDEN / "c_bad_index.corrupt"]
    files += [
        path for folder in others for path in sorted(folder.iterdir()) if kind_of(path) not in (None, FileKind.LOG)
    ]
    return [path for path in dict.fromkeys(files) if path.is_file() and path.stat().st_size < MOST_BYTES]


def opened(path: Path) -> closing[FieldBytes]:
    return closing(FieldBytes(path))


def compressed(bytes_: FieldBytes) -> Iterator[FieldSource | CorruptRecordError]:
    """What is compressed in one batch after the other."""
    position: int | None = 0 if bytes_.size_bytes else None
    while position is not None:
        try:
            found = bytes_.uncompressed(position)
        except CorruptRecordError as error:
            yield error
        else:
            if found is not None:
                yield found
        position = bytes_.following("batch", position)


def all_fields(source: FieldSource) -> list[Field]:
    return list(source.fields_in(0, source.size_bytes))


# --- the doors


@for_each("path", small_files(every=6), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_it_says_what_dump_segment_says(path: Path) -> None:
    (dump,) = find_dumps(path, DumpOptions(is_secret_config=core.view.bytes.field_bytes.is_secret_config))
    fields = list(dump.hex_fields())
    in_file = [one for one in fields if one.position >= 0 and (one.data or "[hidden]" in str(one.value))]
    with opened(path) as shown:
        found = all_fields(shown)
        assert [(one.start, one.name, one.value, one.depth) for one in found] == [
            (one.position, one.name, value_text(one.value), one.depth) for one in in_file
        ]
        for field, expected in zip(found, in_file, strict=True):
            if not field.is_hidden and not field.is_damage:
                assert shown.read(field.start, field.end - field.start).data == expected.data
        inner = [
            (one.name, one.value)
            for source in compressed(shown)
            for one in (all_fields(source) if isinstance(source, FieldSource) else [])
        ]
    assert inner == [(one.name, value_text(one.value)) for one in fields if one.position < 0]


@for_each("path", small_files(every=6), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_fields_cover_a_file_and_are_the_same_from_anywhere(path: Path) -> None:
    with opened(path) as shown:
        found = all_fields(shown)
        assert [*(one.end for one in found)] == [*(one.start for one in found[1:]), *([shown.size_bytes] * bool(found))]
    for field in found[:: max(len(found) // 12, 1)]:
        with opened(path) as fresh:
            assert fresh.field_at((field.start + field.end) // 2) == field
            assert list(fresh.fields_in(field.end - 1, field.end)) == [field]


# --- another road: the documentation, and what a consumer got


def documented_rows() -> list[tuple[Path, int, bytes, str]]:
    rows = []
    for page in ("record-batch", "indexes", "producer-snapshot", "checkpoints", "control-record"):
        path = ROOT
        for line in (ROOT / "docs" / "format" / f"{page}.md").read_text().splitlines():
            if named := re.fullmatch(r"`(sample-data/\S+)`:", line):
                path = ROOT / named[1]
            elif row := re.match(r"    (\d+) +((?:[0-9a-f]{2} )+) +(\S.*)", line):
                rows.append((path, int(row[1]), bytes.fromhex(row[2]), row[3]))
    return rows


def test_every_byte_that_the_documentation_shows_is_of_a_field_with_that_value() -> None:
    checked = 0
    for path, position, data, text in documented_rows():
        with opened(path) as shown:
            field = shown.field_at(position)
            assert shown.read(position, len(data)).data == data
            number = re.search(r": (-?\d+)(?: ms)?(?:,|;|$| \()", text)
            if number and field.start == position and field.end == position + len(data) and field.name != "attributes":
                assert re.search(rf"(?<!\d){number[1]}(?!\d)", f"{field.value} {field.meaning}"), (field, text)
                checked += 1
    assert checked > 35


def value_bytes(source: FieldSource, name: str, position: int) -> bytes | None:
    """The key or value of the record there; None if its length says that there is none."""
    fields = source.group_at(position).fields
    length = next(one for one in fields if one.name == f"{name} length")
    if length.value.startswith("-"):
        return None
    found = [source.read(one.start, one.end - one.start).data for one in fields if one.name == name]
    return found[0] if found else b""


def header_bytes(source: FieldSource, position: int) -> list[bytes]:
    fields = source.group_at(position).fields
    return [source.read(one.start, one.end - one.start).data for one in fields if one.name.startswith("header key")][
        1::2
    ]


@for_each("case", READ_AS_RECORDS, ids=lambda case: case.name)
def test_an_offset_leads_to_the_record_that_a_consumer_got(case: GoldenCase) -> None:
    logs = {int(path.stem): path for path in case.directory.glob("*.log")}
    records = case.records()
    for record in records[:: max(len(records) // 8, 1)]:
        with opened(logs[max(base for base in logs if base <= record.offset)]) as shown:
            position = shown.position_of(record.offset)
            assert position is not None
            source: FieldSource = shown
            if (inside := shown.uncompressed(position)) is not None:
                source, position = inside, inside.position_of(record.offset)
                assert position is not None
            assert value_bytes(source, "key", position) == record.key
            assert record.has_value(value_bytes(source, "value", position))
            if record.headers:
                assert header_bytes(source, position) == [name for name, _ in record.headers if name]
            assert f", offset {record.offset}" in source.field_at(position).path[-1]


def test_an_offset_without_a_record_leads_to_its_batch_or_nowhere() -> None:
    path = GOLDEN / "compacted_tombstones_removed" / "00000000000000000000.log"
    with opened(path) as shown:
        positions = {offset: shown.position_of(offset) for offset in range(200)}
    frames = {start: (base, base + delta) for start, base, delta in batch_frames(path.read_bytes())}
    for offset, position in positions.items():
        if position in frames:
            assert offset <= frames[position][1]
    assert None in positions.values()
    with opened(LOG.with_suffix(".index")) as index, pytest.raises(AccessError, match="no records"):
        index.position_of(3)


def batch_frames(data: bytes) -> list[tuple[int, int, int]]:
    """(position, base offset, last offset delta) of batches of magic 2."""
    found, position = [], 0
    while position < len(data):
        base, length = struct.unpack_from(">qi", data, position)
        (delta,) = struct.unpack_from(">i", data, position + 23)
        found.append((position, base, delta))
        position += 12 + length
    return found


def test_a_path_says_what_a_byte_lies_in() -> None:
    with opened(LOG) as shown:
        value = shown.field_at(80)
    assert (value.name, value.start, value.end) == ("value", 73, 170)
    assert value.path == ("batch at 0, offsets 0 to 2", "record 0, offset 0")
    assert value.value.startswith('{"i": 0, "msg": ')
    assert value.explanation == "The record's value, as the producer sent it."
    assert value.page == "docs/format/record-batch.md"
    with opened(LOG) as shown:
        marker = shown.field_at(3539)
        stamp = shown.field_at(27)
    assert marker.meaning == "ABORT"
    assert marker.path[0] == "control batch at 3473, offset 33"
    assert marker.page == "docs/format/control-record.md"
    assert stamp.meaning == "2023-11-15T00:22:57.794Z"


# --- moving


def test_items_are_records_and_batches_are_batches() -> None:
    frames = [start for start, _, _ in batch_frames(LOG.read_bytes())]
    with opened(LOG) as shown:
        walked = [0]
        while (position := shown.following("batch", walked[-1])) is not None:
            walked.append(position)
        assert walked == frames
        back = [frames[-1] + 5]
        while back[-1] != 0:
            back.append(shown.preceding("batch", back[-1]))
        assert back[1:] == frames[::-1]
        assert shown.following("item", 0) == 61
        items = [61]
        while items[-1] < frames[1]:
            following = shown.following("item", items[-1])
            assert following is not None
            items.append(following)
        assert len(items) == 4, "three records, then the next batch"
        for before, after in pairwise(items):
            assert shown.preceding("item", after) == before
            assert shown.preceding("item", after - 1) == before
        assert shown.following("field", 0) == 8
        assert shown.preceding("field", 9) == 8
        assert shown.preceding("field", 8) == 0
        assert shown.preceding("field", 0) == 0
        assert shown.following("field", shown.size_bytes - 1) is None


def test_an_entry_leads_to_its_batch() -> None:
    with opened(LOG.with_suffix(".index")) as index, opened(LOG.with_suffix(".timeindex")) as time_index:
        lead = index.lead_at(13)
        assert lead is not None
        assert (lead.path, lead.position) == (LOG, 689)
        lead = time_index.lead_at(0)
        assert lead is not None
        assert (lead.path, lead.position, lead.offset) == (LOG, None, 5)
        assert index.following("item", 0) == 8
    with opened(LOG) as shown:
        assert shown.lead_at(0) is None


# --- what is wrong with files


def test_damage_is_a_field_that_says_what_verify_says() -> None:
    path = SAMPLE_DATA / "damaged" / "c_bitflip_middle-0" / "00000000000000000000.log"
    (dump,) = find_dumps(path, DumpOptions())
    list(dump.hex_fields())
    (finding,) = dump.findings
    with opened(path) as shown:
        field = shown.field_at(finding.position + 70)
    assert (field.name, field.start, field.end) == ("damaged", finding.position, finding.end_position)
    assert field.value == finding.message
    assert field.path[0].startswith("crc-mismatch at ")
    assert field.page == "docs/findings.md"
    assert field.is_damage


def test_records_that_do_not_decode_spoil_no_others(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    batch = make_batch(b"first", b"second", b"third")
    data = bytearray(batch.buffer)
    second = 61 + 1 + data[61] // 2
    data[second + 4] = 0x7F  # the length of its key
    batch = type(batch)(memoryview(data))
    data[17:21] = batch.computed_crc().to_bytes(4, "big")
    path.write_bytes(bytes(data) + bytes(make_batch(b"fourth").buffer))
    with opened(path) as shown:
        found = all_fields(shown)
        wrong = [one for one in found if one.name == "records"]
        assert [one.value for one in wrong] == ["do not decode from here on"]
        assert second < wrong[0].start < wrong[0].end == second + 1 + data[second] // 2
        assert [one.value for one in found if one.name == "value"] == ["first", "third", "fourth"]


def test_a_long_value_is_not_cut_within_a_character(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    text = "a" + "é" * 5000
    path.write_bytes(bytes(make_batch(text.encode()).buffer))
    with opened(path) as shown:
        (value,) = [one.value for one in all_fields(shown) if one.name == "value"]
    assert len(value) > 2000
    assert text.startswith(value)


@for_each("count, reason", [(2, "bytes after the last record"), (9, "first|second|third")])
def test_a_wrong_count_is_seen(tmp_path: Path, count: int, reason: str) -> None:
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(make_batch(b"first", b"second", b"third").buffer)
    data[57:61] = count.to_bytes(4, "big")
    data[17:21] = type(make_batch(b""))(memoryview(data)).computed_crc().to_bytes(4, "big")
    path.write_bytes(data)
    with opened(path) as shown:
        assert re.fullmatch(reason, all_fields(shown)[-2 if count > 2 else -1].value)


def test_bytes_that_the_disk_does_not_give_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(b"".join(struct.pack(">ii", n, n * 100) for n in range(1, 2000)))
    break_disk(monkeypatch, {index: [4100]})
    with opened(index) as shown:
        read = shown.read(4000, 200)
        assert read.unreadable == ((4096, 4200),)
        assert read.data[:96] == index.read_bytes()[4000:4096]
        assert read.data[96:] == bytes(104)
        assert shown.field_at(4096).value == "could not be read: input/output error (errno 5)"
        assert shown.field_at(4095).value == str(512 * 100)
        assert [step.found for step in shown.find((bytes(8),))] == [None, None], "no zeros are found there"
        assert shown.lead_at(4100) is None


def test_a_file_that_nothing_is_known_of_is_plain_hex(tmp_path: Path) -> None:
    path = tmp_path / "core.1234"
    path.write_bytes(bytes(range(256)))
    with opened(path) as shown:
        (field,) = all_fields(shown)
        assert (field.name, field.end) == ("bytes", 256)
        assert shown.following("item", 0) is None
        assert not shown.is_dumped
        assert shown.read(250, 100) == ReadBytes(bytes(range(250, 256)))


def test_files_of_every_odd_size_are_shown(tmp_path: Path) -> None:
    whole = {path.suffix or path.name: path.read_bytes() for path in LOG.parent.iterdir()}
    for suffix, data in whole.items():
        name = suffix if not suffix.startswith(".") else f"00000000000000000000{suffix}"
        for size in (0, 1, 3, 7, 17, 60, 62, len(data) - 1):
            path = tmp_path / name
            path.write_bytes(data[:size])
            with opened(path) as shown:
                found = all_fields(shown)
                assert (found[-1].end if found else 0) == shown.size_bytes == min(size, len(data))


@for_each("make", [Path.mkdir, lambda path: path.symlink_to("nowhere"), lambda path: None])
def test_what_is_no_file_is_refused(tmp_path: Path, make: object) -> None:
    path = tmp_path / "00000000000000000000.log"
    make(path)  # type: ignore[operator]
    with pytest.raises(AccessError):
        FieldBytes(path)


def test_a_log_is_known_under_the_names_that_others_give_it(tmp_path: Path) -> None:
    for ending in (".deleted", ".swap", ".cleaned", ".cut-at-0", ".before-recovery-1"):
        path = tmp_path / f"{LOG.name}{ending}"
        shutil.copy(LOG, path)
        with opened(path) as shown:
            assert shown.field_at(0).name == "base offset", ending
            assert shown.is_dumped == (ending in (".cut-at-0", ".before-recovery-1")), "dump-segment knows plog's own"
    with opened(LOG) as shown:
        assert shown.is_dumped


def test_what_was_renamed_or_deleted_meanwhile_is_said(tmp_path: Path) -> None:
    path = tmp_path / LOG.name
    shutil.copy(LOG, path)
    with opened(path) as shown:
        shown.look_again()
        assert shown.note == ""
        path.unlink()
        shown.look_again()
        assert "deleted" in shown.note
        assert shown.field_at(17).name == "crc"
        shutil.copy(LOG, path)
        shown.look_again()
        assert "replaced" in shown.note


# --- old messages


@for_each("magic", [0, 1])
def test_messages_in_a_message_have_their_offsets(tmp_path: Path, magic: int) -> None:
    records = [Record(100 + n, NOW + n, b"k%d" % n, b"v" * n) for n in range(5)]
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(build_wrapper(records, magic, CompressionType.GZIP))
    with opened(path) as shown:
        assert shown.field_at(shown.size_bytes - 1).value == "messages, compressed with gzip"
        inner = shown.uncompressed(0)
        assert inner is not None
        for record in records:
            position = inner.position_of(record.offset)
            assert position is not None
            assert inner.field_at(position).path[-1] == f"message {record.offset - 100}, offset {record.offset}"
            assert value_bytes(inner, "value", position) == record.value


def test_a_message_whose_lengths_are_wrong_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(build_message(Record(0, NOW, b"key", b"value"), 1, 0))
    data[26:30] = (1000).to_bytes(4, "big")
    data[12:16] = struct.pack(">I", zlib.crc32(data[16:]))
    path.write_bytes(data)
    with opened(path) as shown:
        found = all_fields(shown)
    assert [one.name for one in found[-2:]] == ["key length", "records"]
    assert found[-1].end == len(data)


# --- explanations


def test_every_field_is_explained_in_sentences() -> None:
    for part, names in EXPLANATIONS.items():
        for name in names:
            text, page = explain(part, name)
            assert re.fullmatch(r"[A-Z0-9].*[a-z)\d]\.", text), (part, name, text)
            assert all(sentence[0].isupper() for sentence in re.split(r"(?<=[a-z\d])\. ", text)), text
            assert not page or (ROOT / page).is_file()
    for kind in DamageKind:
        assert explain_damage(kind).text.endswith(".")
    assert all((ROOT / page).is_file() for page in PAGES.values())


def test_every_name_that_a_dump_gives_has_an_explanation() -> None:
    assert {name for _, name in FIELDS} <= set(EXPLANATIONS[Part.BATCH])
    for kind, layout in ENTRY_LAYOUTS.items():
        assert {name for name, _ in (*layout.head, *layout.entry)} == set(EXPLANATIONS[Part(kind.value)])
    named = {part: set[str]() for part in Part}
    for path in small_files(every=3):
        with opened(path) as shown:
            for source in (shown, *compressed(shown)):
                for field in all_fields(source) if isinstance(source, FieldSource) else []:
                    assert field.explanation
                    part = next(
                        one
                        for one, names in EXPLANATIONS.items()
                        if field.explanation in names.values() or one is Part.OTHER
                    )
                    named[part].add(field.name)
    assert set(EXPLANATIONS[Part.MESSAGE]) - named[Part.MESSAGE] <= {"records", "key length", "key", "value length"}
    assert set(EXPLANATIONS[Part.RECORD]) - named[Part.RECORD] <= {"records"}
    kinds = {part.value for part in Part}
    assert {kind.value for kind in FileKind} - {"log", "metadata snapshot"} <= kinds


# --- secrets


@pytest.fixture(scope="module")
def secrets() -> list[bytes]:
    image = read_metadata_image(SECURED.parent.parent)
    assert image is not None
    users = image.security.scram_credentials.values()
    return [*(key for user in users for key in (user.salt, user.stored_key, user.server_key)), b"changeit"]


@for_each("name", [SECURED.name, f"{SECURED.name}.deleted", "something"])
def test_secrets_of_the_metadata_log_are_not_there(tmp_path: Path, secrets: list[bytes], name: str) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    path = folder / name
    shutil.copy(SECURED, path)
    where = SECURED.read_bytes().find(b"changeit")
    with opened(path) as shown:
        read = shown.read(where - 10_000, 20_000)
        assert [secret for secret in secrets if secret in read.data] == []
        assert read.hidden
        assert any(read.data) == (name != "something")
        assert "[hidden]" in "".join(field.value for field in shown.fields_in(0, 1000))


def test_secrets_are_not_in_fields_nor_found_nor_read_in_pieces(secrets: list[bytes]) -> None:
    with opened(SECURED) as shown:
        assert "changeit" not in "".join(field.value for field in all_fields(shown))
        assert all(step.found is None for step in shown.find((b"changeit",)))
        position = SECURED.read_bytes().find(b"changeit")
        pieces = [shown.read(start, 100).data for start in range(position - 1000, position + 1000, 50)]
        assert not any(secret in piece for piece in pieces for secret in secrets)
    with opened(SECURED.parent / "quorum-state") as state:
        assert not state.read(0, 100).hidden


# --- finding


def found_at(source: FieldSource, text: str, position: int = 0) -> int | None:
    *_, last = source.find(parse_needles(text), position)
    return None if last.found is None else last.found[0]


def test_text_and_hex_are_found_from_a_position_on_and_round_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.view.bytes.field_bytes, "_SEARCH_BYTES", 100)
    data = LOG.read_bytes()
    with opened(LOG) as shown:
        for text, needle in (
            ("k291", b"k291"),
            ("50 d7 c4 7e", b"\x50\xd7\xc4\x7e"),
            ("50D7C47E", b"\x50\xd7\xc4\x7e"),
            ("0x0000018bd0", b"\0\0\1\x8b\xd0"),
            ('"msg"', b"msg"),
        ):
            for position in (0, 90, len(data) // 2, len(data) - 1):
                expected = data.find(needle, position)
                assert found_at(shown, text, position) == (expected if expected >= 0 else data.find(needle)), text
        assert found_at(shown, "not in there") is None
        assert found_at(shown, "'00'", 0) == data.find(b"00")
    with pytest.raises(UsageError):
        parse_needles("  ")
    assert parse_needles("abcd") == (b"\xab\xcd", b"abcd")
