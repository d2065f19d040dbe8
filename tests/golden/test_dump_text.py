"""`dump-segment --format kafka` prints what Kafka's own DumpLogSegments prints, byte for byte, of every fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.inspector.file_dump import find_dumps
from core.inspector.file_kind import FileKind
from core.inspector.segment_dump import DumpOptions
from tests.support.golden import GOLDEN
from tests.support.logs import append, make_batch, open_log

TEXTS = [path for path in sorted(GOLDEN.glob("*.dump.txt")) if ".corrupt." not in path.name]
UNREAD_BY_KAFKA = (FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA)


def dump(directory: str, *, with_records: bool) -> bytes:
    options = DumpOptions(with_records=with_records, with_data=with_records)
    dumps = find_dumps(Path(directory), options)
    return b"".join(b"".join(d.kafka_text()) for d in dumps if d.kind not in UNREAD_BY_KAFKA)


@pytest.mark.parametrize("text", TEXTS, ids=lambda p: p.name.removesuffix(".dump.txt"))
def test_the_text_is_kafkas(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = text.name.removesuffix(".dump.txt")
    if name.startswith(("__cluster_metadata", "__consumer_offsets", "__transaction_state")):
        pytest.skip("plog decodes these without being told: see the tests below")
    monkeypatch.chdir(GOLDEN)
    expected = text.read_bytes()
    assert dump(name, with_records=b"\n| offset" in expected) == expected


def test_metadata_records_are_decoded_as_kafka_decodes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    found = dump("__cluster_metadata-0", with_records=True)
    assert (GOLDEN / "__cluster_metadata-0.decoded.txt").read_bytes() in found
    snapshot = (GOLDEN / "__cluster_metadata-0.dump.txt").read_bytes().partition(b"Dumping __cluster_metadata-0/")[2]
    snapshot = snapshot[snapshot.index(b"Dumping __cluster_metadata-0/00000000000000000275-0000000001.checkpoint") :]
    assert snapshot[: snapshot.index(b".snapshot\n")] in found


@pytest.mark.parametrize(
    "name", [*(f"__consumer_offsets-{n}" for n in range(3)), *(f"__transaction_state-{n}" for n in range(2))]
)
def test_coordinators_records_are_decoded_as_kafka_decodes_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with --offsets-decoder and --transaction-log-decoder, which need not be given."""
    monkeypatch.chdir(GOLDEN)
    assert (GOLDEN / f"{name}.decoded.txt").read_bytes() in dump(name, with_records=True)


DAMAGED = {
    "c_torn_tail": b"Found 76 invalid bytes at the end of 00000000000000000000.log\n",
    "c_torn_header": b"Found 11 invalid bytes at the end of 00000000000000000000.log\n",
    "c_bitflip_length": b"Found 1896 invalid bytes at the end of 00000000000000000000.log\n",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_log_is_printed_as_kafka_prints_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    options = DumpOptions(with_records=True, with_data=True)
    log = Path(f"{name}.corrupt/00000000000000000000.log")
    found = b"".join(next(iter(find_dumps(log, options))).kafka_text())
    assert found.endswith(DAMAGED[name])
    expected = (GOLDEN / f"{name}.corrupt.dump.txt").read_bytes()
    assert found in expected


def test_what_is_no_record_of_a_group_is_shown_as_it_is(tmp_path: Path) -> None:
    log = open_log(tmp_path / "__consumer_offsets-0")
    append(log, make_batch(b"value", key=b"no group"))
    append(log, make_batch(b"\0\3", key=b"\0\2\0\1g"))
    log.close()
    found = dump(str(tmp_path / "__consumer_offsets-0"), with_records=True)
    assert b" key: no group payload: value\n" in found
    assert b" key: \0\2\0\1g payload: \0\3\n" in found
