"""`plog verify` finds the damage in every damaged fixture, and nothing in any other."""

from __future__ import annotations

from pathlib import Path

from core.inspector.check.findings import Code
from core.inspector.check.verify import verify
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, directories

DAMAGE = {
    "c_bad_index": {Code.INDEX_MISMATCH},
    "c_bad_magic": {Code.BAD_MAGIC},
    "c_bad_snapshot": {Code.SNAPSHOT_CORRUPT},
    "c_bad_timeindex": {Code.TIME_INDEX_MISMATCH},
    "c_bad_txnindex": {Code.TRANSACTION_INDEX_CORRUPT},
    "c_bitflip_last": {Code.CRC_MISMATCH},
    "c_bitflip_length": {Code.BAD_LENGTH},
    "c_bitflip_middle": {Code.CRC_MISMATCH},
    "c_bitflip_zstd": {Code.CRC_MISMATCH},
    "c_garbage_tail": {Code.GARBAGE},
    "c_missing_index": {Code.INDEX_MISSING, Code.TIME_INDEX_MISSING},
    "c_torn_61": {Code.TORN_TAIL},
    "c_torn_header": {Code.TORN_TAIL},
    "c_torn_tail": {Code.TORN_TAIL},
    "c_zero_tail": {Code.ZEROED},
}
KAFKA_LEFT_IT = {"c_bad_magic.recovered"}
"""Kafka's own recovery passes over a magic that no format has."""

SOUND = [d for d in directories() if not d.name.endswith(".corrupt") and d.name not in KAFKA_LEFT_IT]


@for_each("name", DAMAGE)
def test_damage_is_found(name: str) -> None:
    assert {finding.code for finding in verify(GOLDEN / f"{name}.corrupt")} == DAMAGE[name]


@for_each("directory", SOUND, ids=lambda d: d.name)
def test_nothing_is_found_where_nothing_is_wrong(directory: Path) -> None:
    assert not list(verify(directory))


def test_a_finding_says_where() -> None:
    (finding,) = verify(GOLDEN / "c_bitflip_middle.corrupt")
    assert finding.path.endswith("c_bitflip_middle.corrupt/00000000000000000000.log")
    assert (finding.position, finding.offset) == (2533, 21)
    assert finding.message == (
        "stored crc b47c0519, computed d4d3d150: bit 4 of the byte at position 2707 is flipped (in the records)"
    )
    assert (finding.end_position, finding.last_offset, finding.records) == (2824, 22, 2)
