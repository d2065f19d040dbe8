"""What is planted in a log is what `plog verify` finds, no more, no less; what `plog recover` promises is left."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.forensics.partition_reader import PartitionReader
from core.inspector.check.findings import Code
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import verify
from core.inspector.recover.recovery import Recovery
from core.inspector.recover.recovery_plan import Action, RecoveryOptions
from core.inspector.recover.recovery_planner import plan_recovery
from tests.support import doors
from tests.support.damage import Planted, places, plant, write_log
from tests.support.golden import GOLDEN
from tests.support.logs import fingerprint

SEEDS = st.integers(0, 2**32)


def make(memory: Path, random: Random) -> tuple[Path, dict[int, tuple[bytes | None, bytes | None]]]:
    directory = memory / "t-0"
    shutil.rmtree(directory, ignore_errors=True)
    return directory, write_log(directory, random, random.randint(6, 30))


def read(directory: Path) -> dict[int, tuple[bytes | None, bytes | None]]:
    log = PartitionReader(directory)
    batches = log.read(log.start_offset, log.end_offset, read_committed=False)
    found = {record.offset: (record.key, record.value) for batch in batches for record in batch.records()}
    log.close()
    return found


@given(seed=SEEDS)
def test_a_sound_log_has_no_finding(memory: Path, seed: int) -> None:
    directory, records = make(memory, Random(seed))
    assert list(verify(directory, options=VerifyOptions(is_deep=True, is_paranoid=True))) == []
    assert read(directory) == records


@given(seed=SEEDS)
def test_what_is_found_is_what_was_planted(memory: Path, seed: int) -> None:
    random = Random(seed)
    directory, _ = make(memory, random)
    offsets = {offset for place in places(directory) for offset in place.offsets}
    markers = {place.offset for place in places(directory) if place.is_control}
    planted = plant(directory, random)
    findings = list(verify(directory))
    assert sorted(f.code for f in findings) == sorted(planted.codes), findings
    at_stake = {offset for lost in doors.lost_by(findings) for offset in lost}
    assert planted.lost <= at_stake
    assert not (at_stake - planted.lost) & offsets, "but for holes beside the damage, which can't be told from it"
    counted = sum(f.records or 0 for f in findings)
    assert len(at_stake - markers) <= counted <= len(at_stake), "a marker is no record, if its header still tells"


def recover(directory: Path, options: RecoveryOptions) -> None:
    plans = list(plan_recovery(directory, options))
    assert all(step.action is not Action.NONE for plan in plans for step in plan.steps)
    with Recovery(directory.parent) as recovery:
        recovery.apply(plans)


def promised(
    directory: Path, records: dict[int, tuple[bytes | None, bytes | None]], planted: Planted, options: RecoveryOptions
) -> dict[int, tuple[bytes | None, bytes | None]]:
    lost = planted.lost - planted.fixable if options.fixes_bits else planted.lost
    if options.is_like_kafka and planted.first is not None:
        first = next((p for p in places(directory) if (p.path, p.position) == planted.first), None)
        if first is not None:
            return {offset: record for offset, record in records.items() if offset < first.offset}
    return {offset: record for offset, record in records.items() if offset not in lost}


@given(seed=SEEDS, fixes_bits=st.booleans(), is_like_kafka=st.booleans())
@example(seed=1144, fixes_bits=False, is_like_kafka=True)  # the newest snapshot left is a roll's, and holes come later
@example(seed=73, fixes_bits=False, is_like_kafka=False)  # another marker takes the place of an unknown one
def test_what_a_recovery_promises_is_what_is_left(
    memory: Path, seed: int, *, fixes_bits: bool, is_like_kafka: bool
) -> None:
    random = Random(seed)
    options = RecoveryOptions(is_like_kafka=is_like_kafka, fixes_bits=fixes_bits and not is_like_kafka)
    directory, records = make(memory, random)
    shutil.rmtree(memory / "before", ignore_errors=True)
    shutil.copytree(directory, memory / "before" / "t-0")
    planted = plant(directory, random)
    damaged = fingerprint(directory)
    recover(directory, options)
    assert list(verify(directory)) == []
    expected = promised(memory / "before" / "t-0", records, rebased(planted, memory / "before" / "t-0"), options)
    assert read(directory) == expected
    assert list(plan_recovery(directory, options)) == []
    with Recovery(directory.parent) as recovery:
        recovery.undo([directory])
    assert fingerprint(directory) == damaged


def rebased(planted: Planted, directory: Path) -> Planted:
    """The same of a copy."""
    if planted.first is not None:
        planted.first = directory / planted.first[0].name, planted.first[1]
    return planted


KAFKAS = ["codec_zstd_java", "codec_lz4_rdkafka", "txn_interleaved", "compacted_txn", "compacted_zstd", "headers",
          "multisegment", "logappendtime_lz4", "idempotent", "deleterecords"]  # fmt: skip


@pytest.mark.parametrize("name", KAFKAS)
@given(seed=SEEDS)
def test_a_flipped_bit_of_kafkas_is_located_and_mended(memory: Path, name: str, seed: int) -> None:
    """Of anything but the base offset and leader epoch, which nothing protects."""
    random = Random(seed)
    directory = memory / f"{name}-0"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(GOLDEN / name, directory)
    place = random.choice(places(directory))
    at = random.choice([*range(8, 12), *range(16, place.end - place.position)])
    whole = place.path.read_bytes()
    data = bytearray(whole)
    data[place.position + at] ^= 1 << random.randrange(8)
    place.path.write_bytes(data)
    (finding,) = verify(directory)
    assert (finding.position, finding.end_position) == (place.position, place.end)
    assert finding.code in (Code.CRC_MISMATCH, Code.BAD_LENGTH, Code.BAD_MAGIC)
    assert finding.fix is not None
    assert finding.fix == (place.position + at, data[place.position + at], whole[place.position + at])
    recover(directory, RecoveryOptions(fixes_bits=True))
    assert place.path.read_bytes() == whole
    assert list(verify(directory)) == []
