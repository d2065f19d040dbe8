"""Whatever is wrong with a log, every door says the same of it, and the judge too.

Of the doors that open batches: `verify` is asked with --deep, and dump-segment for its records.

S is what tests/support/log_model.py says that a read_uncommitted reader has to get. These are asked of the same damaged
folder, by way of tests/support/doors.py: consume, a broker that only reads, dump-segment, gaps, verify and recover.

    S = what consume gives = what a broker gives = the valid batches of the log that dump-segment shows
      = what is left after a recovery
    log start to log end without S = the ranges of gaps, each offset once
    the ranges of verify's findings that lose records = those of gaps that are losses
    at read_committed: S without what gaps calls aborted, open or undecided, from the files and from a broker; and gaps
      says what the markers say, wherever nothing is missing before them

`scripts/torture --one-truth 5000` tries more cases. What a failure taught is kept in KEPT.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from core.common.java_limits import LONG_MAX
from core.files.file_names import OFFSET_CHECKPOINTS
from core.forensics.gap_ledger import LOSING_REASONS, GapReason
from core.forensics.recovery_journal import gave_up_end
from core.inspector.check.findings import Code
from core.inspector.recover.recovery_plan import Action
from tests.support import crafted, doors
from tests.support.broker import add_topic, open_broker
from tests.support.damage import write_log
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, GoldenCase, directories, golden_cases
from tests.support.log_model import Fate, LogModel, ranges_without
from tests.support.server import Server, call_plog
from tests.support.wreck import apply as wreck_by
from tests.support.wreck import wreck

COUNT = int(os.environ.get("PLOG_ONE_TRUTH_CASES", "60"))
FIRST = int(os.environ.get("PLOG_ONE_TRUTH_FIRST", "0"))


def some(count: int) -> range:
    """Seeds: so many of them in `scripts/torture`, fewer in a run of all tests."""
    return range(min(count, COUNT // 5))


KEPT = [
    ("multisegment", "swap_logs", 1),
    ("multisegment", "delete_log", 0),
    ("v1_none_java", "flip_bit_of_header", 13),
    ("txn_interleaved", "take_out", 4),
    ("compacted_txn", "copy_segment", 5),
    ("__transaction_state-0", "swap_distant", 176),
    ("big_value_lz4", "swap_distant", 162),
    ("c_torn_tail", "stray_write", 311),
    ("idempotent", "stray_write", 12),
    ("v0_lz4_java", "swap_neighbours", 3),
    ("mixed_v0_v1_v2", "zero_bytes", 7),
    ("deleterecords", "cut_file", 2),
    ("live_unclean", "append_bytes", 3),
    ("txn_interleaved", "take_out", 3),
    ("v2_txn_tv1", "take_out", 0),
    ("compacted_txn", "flip_bit", 8),
    ("compacted_txn", "flip_bit_of_header", 1),
    ("txn_open", "zero_bytes", 33),
]
"""(folder, kind of damage, seed): one of each kind, and what a failure taught."""

_ANOTHER = 1_000_003
FOLDERS = [path for path in directories() if not path.name.startswith("_root") and path.name != "__cluster_metadata-0"]
"""All partitions' folders; of the metadata log there is no consumer."""

LOGS = [path for folder in FOLDERS for path in folder.glob("*.log") if path.stat().st_size]


@dataclass(frozen=True)
class Wrecked:
    """`what`: where it comes from and what was done to it."""

    directory: Path
    what: str
    model: LogModel


def make(memory: Path, seed: int) -> Wrecked:
    """The case of a seed: a copy of a folder of Kafka's, or a log of our own, that is damaged."""
    random = Random(seed)
    if random.random() < 0.7:
        sound = copy(memory, random.choice(FOLDERS), is_in_data_directory=random.random() < 0.6)
        directory = sound.directory
    else:
        directory = _empty(memory) / "t-0"
        write_log(directory, random, random.randint(4, 14))
    crcs = _crcs(LogModel(directory))
    what = wreck(directory, random, LOGS)
    wrecked = Wrecked(directory, f"seed {seed}, {directory.name}: {what}", LogModel(directory))
    return wrecked if _is_decidable(wrecked.model, crcs) else make(memory, seed + _ANOTHER)


def _crcs(model: LogModel) -> set[int]:
    return {frame.crc for frames in model.frames_by_file.values() for frame in frames}


def _is_decidable(model: LogModel, crcs: set[int]) -> bool:
    """False for what nothing can find (docs/findings.md): a batch of another log whose offsets fit."""
    return all(frame.crc in crcs for frame in model.log)


def copy(memory: Path, source: Path, *, is_in_data_directory: bool) -> Wrecked:
    """A folder of Kafka's as it is, alone or with what its data directory says of it."""
    root = _empty(memory)
    directory = root / (source.name if source.name.startswith("__") else f"{source.name}-0")
    shutil.copytree(source, directory)
    if is_in_data_directory:
        _add_root(root, directory.name.rpartition("-")[0])
    return Wrecked(directory, f"{directory.name} as it is", LogModel(directory))


def _empty(memory: Path) -> Path:
    root = memory / "data"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    return root


def _add_root(root: Path, topic: str) -> None:
    """What the data directory of the Kafka that wrote them says of the topic's partitions."""
    origins = [GOLDEN / name for name in ("_root", "_root3")]
    (root / "meta.properties").write_bytes((origins[0] / "meta.properties").read_bytes())
    for name in OFFSET_CHECKPOINTS:
        lines = [
            line
            for origin in origins
            for line in (origin / name).read_text().splitlines()[2:]
            if line.rpartition(" ")[0].rpartition(" ")[0] == topic
        ]
        (root / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


# --- the judge itself


@for_each("golden", golden_cases(), ids=lambda c: c.name, first=20)
def test_the_judge_says_of_a_sound_log_what_kafkas_consumer_got(golden: GoldenCase) -> None:
    model = LogModel(golden.directory)
    truth = golden.truth
    records = {r.offset: r for r in golden.records()}
    read = {offset: record for offset, record in model.records.items() if offset >= truth["begin_offset"]}
    assert read.keys() == records.keys()
    for offset, (key, value) in read.items():
        assert key == records[offset].key
        assert records[offset].has_value(value)
    assert model.log_end == truth["high_watermark"]
    assert not (model.damage or model.stray or model.repeated or model.flipped or model.placed or model.undecodable)


# --- the doors


class _Verdict:
    """Collects what the doors say otherwise, so that one failure names them all."""

    def __init__(self, wrecked: Wrecked) -> None:
        self._wrecked = wrecked
        self._said: list[str] = []

    def ask(self, door: str, question: Callable[[], None]) -> None:
        """An AssertionError is the door's answer; anything else that is raised, its failure."""
        try:
            question()
        except AssertionError as error:
            self._said.append(f"{door}: {str(error).splitlines()[0] if str(error) else 'asserts'}")
        except Exception as error:  # noqa: BLE001 - whatever a door raises is what it says
            self._said.append(f"{door} raises {type(error).__name__}: {error}")

    def ask_of(self, door: str, offsets: list[int]) -> None:
        self.ask(door, lambda: same_offsets(offsets, self._wrecked.model.records))

    @property
    def wrong(self) -> list[str]:
        """The case, what each door said, and the judge; nothing where all agree."""
        if not self._said:
            return []
        return ["\n  ".join([self._wrecked.what, *self._said, f"the judge: {_summary(self._wrecked.model)}"])]

    def give(self) -> None:
        if self._said:
            pytest.fail(self.wrong[0], pytrace=False)


def _summary(model: LogModel) -> str:
    text = f"offsets [{model.log_start}, {model.log_end}), {len(model.records)} records, missing {_text(model.missing)}"
    for name in ("placed", "repeated", "flipped", "stray"):
        frames = getattr(model, name)
        if frames:
            text += f", {name}: {', '.join(map(str, frames[:4]))}{' ...' if len(frames) > 4 else ''}"
    if model.damage:
        text += ", damage: " + ", ".join(f"{d.path.name}:{d.position}-{d.end}" for d in model.damage[:4])
    return text


def _text(ranges: list[range]) -> str:
    return ", ".join(f"{r.start}-{r.stop - 1}" for r in ranges[:6]) + (" ..." if len(ranges) > 6 else "") or "none"


def same_records(found: doors.Records, expected: doors.Records) -> None:
    same_offsets(found.keys(), expected.keys())
    changed = [offset for offset, record in found.items() if record != expected[offset]]
    assert not changed, f"records changed: {changed[:5]}"


def same_offsets(found: object, expected: object) -> None:
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))  # type: ignore[call-overload]
    assert not missing and not extra, (
        f"{len(missing)} records are left out: {missing[:5]}; {len(extra)} should not be there: {extra[:5]}"
    )


def same_ranges(found: list[range], expected: list[range]) -> None:
    assert doors.merged(found) == doors.merged(expected), f"names {_text(found)}; it is {_text(expected)}"


def judge(wrecked: Wrecked, *, with_broker: bool) -> None:
    """Asks all doors; fails with what each says that is not true."""
    directory, model = wrecked.directory, wrecked.model
    verdict = _Verdict(wrecked)
    before = doors.contents(directory)

    verdict.ask("consume", lambda: same_records(doors.consume(directory), model.records))
    verdict.ask("dump-segment", lambda: same_offsets(doors.dumped(directory, model), model.records))
    verdict.ask("gaps", lambda: same_account(directory, model))
    verdict.ask("gaps of what is lost", lambda: losses_are_told(directory, model))
    verdict.ask("what consume says", lambda: losses_are_no_secret(directory))
    verdict.ask("verify", lambda: same_ranges(doors.lost_by(doors.found(directory)), _losses(directory)))
    verdict.ask("gaps read_committed", lambda: markers_are_obeyed(directory, model))
    verdict.ask(
        "consume read_committed",
        lambda: same_records(doors.consume(directory, read_committed=True), committed(directory, model)),
    )
    verdict.ask("inspect", lambda: is_inspected(directory, model))
    if model.transactional:
        verdict.ask("broker read_committed", lambda: committed_is_served(directory, model))
    if with_broker and doors.is_in_data_directory(directory):
        verdict.ask("broker", lambda: same_records(doors.served(directory), model.records))
    verdict.ask("a segment's owner", lambda: segments_are_told(model))
    verdict.ask("verify of the checkpoints", lambda: wrong_lines_are_told(directory, model))
    verdict.ask("reading", lambda: unchanged(directory, before))
    verdict.ask("recover", lambda: recovery_keeps_all(directory, model))
    verdict.ask("recover --undo", lambda: undo_restores_all(directory, before))
    verdict.give()


def same_account(directory: Path, model: LogModel) -> None:
    account = doors.gaps(directory)
    assert (account.start, account.end) == (model.log_start, model.log_end), (
        f"the log is [{account.start}, {account.end}); it is [{model.log_start}, {model.log_end})"
    )
    same_ranges(account.ranges(), model.unread)


def is_inspected(directory: Path, model: LogModel) -> None:
    """The rows of `plog inspect` are the records, and its gaps those of `plog gaps`, reason by reason."""
    records, account = doors.inspected(directory)
    same_records(records, model.records)
    expected = doors.gaps(directory, read_committed=True)
    for reason in GapReason:
        try:
            same_ranges(account.ranges(only=[reason]), expected.ranges(only=[reason]))
        except AssertionError as error:
            raise AssertionError(f"{reason.value}: {error}") from error


def losses_are_told(directory: Path, model: LogModel) -> None:
    """What an index knows of is a loss, whatever the cleaner did, and what a file held that holds another's batches,
    what a damaged message may have held, or damage where offsets are missing. A hole is the cleaner's only where
    something shows that it was there.
    """
    losses = _losses(directory)
    lost = model.cut_ends + model.overwritten + model.hidden
    silent = [some for one in lost for some in ranges_without(one, losses)]
    assert not silent, f"offsets {_text(silent)} are no loss to it; an index names some, or the file is another's"
    for missing in model.beside_damage:
        is_told = any(ranges_without(some, losses) != [some] for some in missing)
        assert is_told, f"nothing of {_text(missing)} is a loss to it; there is damage in their place"
    uncleaned = model.missing_in(range(model.cleaned_end, model.log_end))
    silent = [some for one in uncleaned for some in ranges_without(one, losses)]
    assert not silent, f"offsets {_text(silent)} are no loss to it; nothing shows a cleaner there"


def losses_are_no_secret(directory: Path) -> None:
    """`plog consume` says it, with --no-exit-on-error and without, if offsets are lost that nobody gave up."""
    if doors.gaps(directory).ranges(only=LOSING_REASONS - {GapReason.TRUNCATED}):
        for passes_over in (False, True):
            told = doors.ask_files(directory, read_committed=False, passes_over=passes_over).told
            assert told, f"it says nothing of a loss; whether it goes on: {passes_over}"


def _losses(directory: Path) -> list[range]:
    return doors.losses(doors.gaps(directory))


def committed(directory: Path, model: LogModel) -> doors.Records:
    """S without what `gaps` says that readers of committed records don't get."""
    hidden = doors.hidden(doors.gaps(directory, read_committed=True))
    return {o: record for o, record in model.records.items() if not any(o in some for some in hidden)}


def markers_are_obeyed(directory: Path, model: LogModel) -> None:
    """Where the log alone tells, nothing else decides. What follows a transaction that may be open may be held back."""
    account = doors.gaps(directory, read_committed=True)
    hidden = {o for some in account.ranges(only=(GapReason.ABORTED, GapReason.UNDECIDED)) for o in some}
    held_back = {o for some in account.ranges(only=(GapReason.OPEN,)) for o in some}
    may_be_open = False
    for offset in sorted(model.records):
        fate = model.fates.get(offset)
        may_be_open = may_be_open or fate in (Fate.OPEN, Fate.DOUBTFUL)
        assert offset not in held_back or may_be_open, f"offset {offset} is held back, and no transaction is open"
        if fate in (None, Fate.COMMITTED):
            assert offset not in hidden, f"offset {offset} is left out, and was committed"
        elif fate is not Fate.DOUBTFUL:
            assert offset in hidden | held_back, f"offset {offset} is given, and is {fate}"


def committed_is_served(directory: Path, model: LogModel) -> None:
    expected = committed(directory, model)
    if doors.is_in_data_directory(directory):
        same_records(doors.served(directory, read_committed=True), expected)
        return
    with tempfile.TemporaryDirectory(dir=directory.parent.parent) as root:
        for path in (GOLDEN / "_root" / "meta.properties", *directory.parent.glob("*-checkpoint")):
            shutil.copy(path, root)
        copied = shutil.copytree(directory, Path(root) / directory.name)
        (copied / "partition.metadata").unlink(missing_ok=True)
        same_records(doors.served(copied, read_committed=True), expected)


def segments_are_told(model: LogModel) -> None:
    """Each segment on its own, as recovery and coordinators read it: its neighbours' names are all it knows of them."""
    with tempfile.TemporaryDirectory(dir=model.directory.parent.parent) as scratch:
        for number, (base_offset, path) in enumerate(model.files):
            alone = Path(scratch) / f"{number}" / "t-0"
            alone.mkdir(parents=True)
            shutil.copyfile(path, alone / path.name)
            following = model.files[number + 1 :][:1]
            for _, other in following:
                (alone / other.name).touch()
            end_offset = following[0][0] if following else LONG_MAX
            accepted = (frame for frame in LogModel(alone).accepted if frame.path.name == path.name)
            expected = [frame.position for frame in accepted if frame.end_offset <= end_offset]
            same_offsets(doors.standing(path, base_offset, end_offset), expected)


def wrong_lines_are_told(directory: Path, model: LogModel) -> None:
    codes = [finding.code for finding in doors.found(directory)]
    assert codes.count(Code.LOG_START_WRONG) == model.has_wrong_start, f"verify finds {codes}"
    assert codes.count(Code.HIGH_WATERMARK_WRONG) == model.has_wrong_watermark, f"verify finds {codes}"


def unchanged(directory: Path, before: dict[str, bytes]) -> None:
    after = doors.contents(directory)
    changed = sorted(Path(name).name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    assert not changed, f"files differ: {changed}"


def recovery_keeps_all(directory: Path, model: LogModel) -> None:
    """Exactly S is left, nothing more is lost or hidden than was, what was is still said to be, and what `verify` finds
    the plan could not mend.
    """
    lost_before = _losses(directory)
    certain = doors.gaps(directory).ranges(only=LOSING_REASONS - {GapReason.UNKNOWN})
    committed_before = doors.consume(directory, read_committed=True)
    plans = doors.recover(directory)
    left = LogModel(directory)
    same_records(left.records, model.records)
    same_records(doors.consume(directory), model.records)
    assert not (left.damage or left.stray or left.repeated or left.flipped or left.placed), _summary(left)
    unmendable = {
        (step.path, step.why.partition(":")[0]) for plan in plans for step in plan.steps if step.action is Action.NONE
    }
    findings = doors.found(directory)
    for finding in findings:
        is_refused_by_java = finding.code is Code.BAD_BATCH and not finding.records
        is_honest = finding.records or is_refused_by_java or (Path(finding.path), finding.code.value) in unmendable
        assert is_honest, f"verify still finds {finding.code} in {Path(finding.path).name}: {finding.message}"
    new = [some for one in doors.lost_by(findings) for some in ranges_without(one, lost_before)]
    assert not new, f"offsets {_text(new)} are lost by the recovery"
    same_account(directory, left)
    losses_are_told(directory, left)
    told = [*_losses(directory), *(range(marker, marker + 1) for marker in left.control)]
    ends = [one for one in certain if one.stop > left.log_end and gave_up_end(directory, one.start)]
    told += [range(left.log_end, one.stop) for one in ends]
    # A message that does not open may hold what its file's name allows, and that may be another file now.
    told += [range(one.start, b) for one in certain for b, last in left.unopened if one.start < b <= last < one.stop]
    silent = [some for one in certain for some in ranges_without(one, told)]
    assert not silent, f"offsets {_text(silent)} are no loss after the recovery"
    if not any(step.action in (Action.NONE, Action.LEAVE_OPEN) for plan in plans for step in plan.steps):
        left_out = sorted(committed_before.keys() - doors.consume(directory, read_committed=True).keys())
        assert not left_out, f"the recovery hides what was committed: {left_out[:5]}"


def undo_restores_all(directory: Path, before: dict[str, bytes]) -> None:
    doors.undo(directory)
    unchanged(directory, before)


@for_each("golden", golden_cases(), ids=lambda c: c.name, first=10)
def test_all_doors_say_the_same_of_a_sound_log(memory: Path, golden: GoldenCase) -> None:
    random = Random(golden.name)
    wrecked = copy(memory, golden.directory, is_in_data_directory=random.random() < 0.5)
    judge(wrecked, with_broker=True)


KEPT_SEEDS = (
    *(1000340, 348, 404, 2000883, 1253, 1310, 1504, 1633, 1001782, 1790, 1850, 1914, 1987, 1002128, 2185, 1003025),
    *(
        1004099,
        91175,
        64211,
        5190,
        20460,
        20463,
        1020561,
        1021438,
        30953,
        32353,
        40020,
        40240,
        41373,
        41755,
        42611,
        43083,
        43220,
        43893,
        44750,
    ),
    *(61338, 61659, 61787, 71827, 73162, 1076790, 76855, 78552),
    *(100412, 100526, 101343, 103129, 103815, 103906, 2104156),
    *(1102503, 201810, 202400, 101258, 200283, 200526, 202313, 203809, 300344, 304897, 306583, 307729, 308662),
    221262,
    3350459,
)
"""Damage drawn by chance that taught something: each failed once."""


@for_each("seed", [*range(FIRST, FIRST + COUNT), *(KEPT_SEEDS if FIRST == 0 else ())], first=30)
def test_all_doors_say_the_same_of_a_damaged_log(memory: Path, seed: int) -> None:
    judge(make(memory, seed), with_broker=seed % 5 == 0)  # not all of them are in a data directory


@for_each("example, is_in_data_directory", product(KEPT, [True, False]), first=12)
def test_a_kept_example(memory: Path, example: tuple[str, str, int], *, is_in_data_directory: bool) -> None:
    name, kind, seed = example
    sound = copy(memory, GOLDEN / name, is_in_data_directory=is_in_data_directory)
    what = wreck_by(sound.directory, kind, seed, LOGS)
    assert what, "the seed damages something"
    judge(Wrecked(sound.directory, f"{name}: {what}", LogModel(sound.directory)), with_broker=True)


@for_each("kind, seed", product(["move_log_start", "move_high_watermark"], [*some(60), 316, 557, 663]), first=10)
def test_all_doors_say_the_same_of_a_checkpoint_with_a_wrong_digit(memory: Path, kind: str, seed: int) -> None:
    """After a clean stop other files tell that it is wrong, whatever else is damaged; after a crash it is believed. Of
    two logs in three records were deleted before, as Kafka does it.
    """
    random = Random(seed)
    sound = copy(memory, random.choice(FOLDERS), is_in_data_directory=True)
    if seed % 5:
        (sound.directory.parent / ".kafka_cleanshutdown").touch()
    what = f"records deleted below {delete_records(sound.directory, random)}; " if seed % 3 else ""
    what += wreck_by(sound.directory, kind, seed)
    what += f"; {wreck(sound.directory, random)}" if seed % 2 else ""
    model = LogModel(sound.directory)
    judge(Wrecked(sound.directory, f"seed {seed}, {sound.directory.name}: {what}", model), with_broker=True)


def delete_records(directory: Path, random: Random) -> int:
    """As DeleteRecords does, up to some offset: it is the log's start in the root, and the first epoch begins there."""
    sound = LogModel(directory)
    start = random.randint(sound.log_start, sound.log_end)
    starts, epochs = directory.parent / "log-start-offset-checkpoint", directory / "leader-epoch-checkpoint"
    topic, _, partition = directory.name.rpartition("-")
    others = [line for line in starts.read_text().splitlines()[2:] if line.split()[:-1] != [topic, partition]]
    lines = [*others, f"{topic} {partition} {start}"]
    starts.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    if epochs.exists():
        entries = [(int(epoch), int(first)) for epoch, first in map(str.split, epochs.read_text().splitlines()[2:])]
        before = [(epoch, start) for epoch, first in entries if first <= start][-1:]
        entries = [*before, *((epoch, first) for epoch, first in entries if first > start)]
        epochs.write_text("\n".join(["0", str(len(entries)), *(f"{one} {first}" for one, first in entries), ""]))
    return start


def make_of_others(memory: Path, seed: int) -> Wrecked:
    """The case of a seed: a log that others wrote, in a data directory or alone; half of them damaged."""
    random = Random(seed)
    segments, what = crafted.random_log(random, has_odd_wrappers=seed % _ANOTHER >= 300_000)
    directory = crafted.write_partition(_empty(memory) / "t-0", segments)
    if random.random() < 0.3:
        _add_root(memory / "data", "t")
    if seed % _ANOTHER >= 400_000 and random.random() < 0.8:
        what += f"; {_add_checkpoints(directory, random)}"
    crcs = _crcs(LogModel(directory))
    if seed % 2:
        what += f"; {wreck(directory, random)}"
    wrecked = Wrecked(directory, f"seed {seed}: {what}", LogModel(directory))
    return wrecked if _is_decidable(wrecked.model, crcs) else make_of_others(memory, seed + _ANOTHER)


def _add_checkpoints(directory: Path, random: Random) -> str:
    """What a broker and a cleaner would write of that log: in the root, and beside the logs. Some of it, in words."""
    root, model = directory.parent, LogModel(directory)
    bases = [base for base, _ in model.files]
    (root / "meta.properties").write_bytes((GOLDEN / "_root" / "meta.properties").read_bytes())
    is_stopped = random.random() < 0.3
    offsets = {
        "recovery-point-offset-checkpoint": model.log_end if is_stopped else random.choice((0, *bases, model.log_end)),
        "replication-offset-checkpoint": model.log_end if is_stopped else random.choice((0, *bases, model.log_end)),
        "log-start-offset-checkpoint": bases[0],
        "cleaner-offset-checkpoint": random.choice(bases),
    }
    written = {name: offset for name, offset in offsets.items() if is_stopped or random.random() < 0.6}
    for name, offset in written.items():
        (root / name).write_text(f"0\n1\nt 0 {offset}\n")
    if is_stopped:
        (root / ".kafka_cleanshutdown").touch()
    snapshots = [*bases[1:], *([model.log_end] if is_stopped else [])] if random.random() < 0.5 else []
    for offset in snapshots:
        (directory / f"{offset:020}.snapshot").write_bytes(b"\0\1\x48\x67\x4b\xc7\0\0\0\0")  # of no producers
    said = [f"{name.removesuffix('-offset-checkpoint')} {offset}" for name, offset in written.items()]
    return ", ".join([*said, f"snapshots {snapshots}", *(["stopped cleanly"] if is_stopped else [])])


KEPT_OF_OTHERS = (
    *(2000081, 219, 236, 267, 287, 1000333, 2000385, 395, 439, 3000453, 455, 5000747, 2000889, 907, 952),
    *(100040, 1100087, 100118, 2100129, 100227, 100273, 1100287, 1100289),
    *(4101030, 3101047, 101087, 101096, 101145, 101151, 1101349, 101380, 1101384, 1101895),
    *(1000031, 3200157, 200167, 1210419, 220073, 220981, 221005, 1221011, 221163, 221463, 300159),
    *(301109, 302113, 400015, 400151, 401251, 402041, 402645, 1403424, 1403448, 403479, 405709, 406205),
    *(407800, 408426, 2410605, 440819, 502651, 1503539, 910507, 2910655, 980005, 991848),
    *(991867, 993175, 994091, 1700091, 2501241, 2900083, 3100063, 3300053),
)
"""Each failed once."""


@for_each("seed", [*range(FIRST, FIRST + COUNT * 2 // 3), *(KEPT_OF_OTHERS if FIRST == 0 else ())], first=12)
def test_all_doors_say_the_same_of_what_others_wrote(memory: Path, seed: int) -> None:
    """Messages of all formats in each position, other encoders' frames, offsets beyond an index, lone folders."""
    judge(make_of_others(memory, seed), with_broker=seed % 5 == 0)


_ONE = crafted.message(0, b"a", b"0", 0)
_TWO: list[crafted.Record] = [(b"b", b"1"), (b"c", b"2")]
COVERED = {
    "a copy": ({0: _ONE, 56: _ONE + crafted.wrapper([1, 2], _TWO, 0, offset=3)}, [range(1, 3)]),
    "zeros": ({0: _ONE + bytes(40) + crafted.wrapper([1, 2], _TWO, 0, offset=0)}, [range(1, 3)]),
    "zeros, and it is right": ({0: bytes(40) + crafted.wrapper([0, 1, 2], [(b"a", b"0"), *_TWO], 0, offset=2)}, []),
    "zeros, and 0 is right": ({0: bytes(40) + crafted.wrapper([0], _TWO[:1], 0)}, []),
}
"""By what stands before a compressed message of magic 0: the segments, and the offsets that are lost."""


@for_each("name", COVERED)
def test_offsets_that_a_checksum_covers_are_believed_wherever_they_stand(memory: Path, name: str) -> None:
    """Whatever the file's name is, and whatever took the offset before them."""
    segments, lost = COVERED[name]
    directory = crafted.write_partition(_empty(memory) / "t-0", segments)
    wrecked = Wrecked(directory, name, LogModel(directory))
    assert wrecked.model.missing == lost
    assert doors.gaps(directory).ranges(only=(GapReason.DAMAGED,)) == lost
    judge(wrecked, with_broker=False)


def test_a_last_file_of_one_displaced_message_does_not_say_where_the_log_ends(memory: Path) -> None:
    """The offsets inside continue the file before, and lie below its own file's name."""
    segments = {0: _ONE, 2: crafted.wrapper([1, 2], _TWO, 1) + bytes(17)}
    directory = crafted.write_partition(_empty(memory) / "t-0", segments)
    wrecked = Wrecked(directory, "a displaced message", LogModel(directory))
    assert (doors.gaps(directory).end, wrecked.model.missing) == (3, [])
    judge(wrecked, with_broker=False)


@for_each("is_in_place", (False, True))
def test_a_message_that_lacks_records_shows_a_cleaner_where_its_offsets_fit(memory: Path, is_in_place: bool) -> None:
    """Offsets 0 to 2 are missing. The next segment begins with a compressed message that lacks one of its records, and
    states an offset one too far, or not.
    """
    thinned = crafted.wrapper([6, 8], _TWO, 1, offset=8 if is_in_place else 9)
    after = crafted.wrapper([9, 10], _TWO, 0)
    segments = {0: crafted.message(3, b"d", b"3", 1) + crafted.message(4, b"e", b"4", 1), 5: thinned + after}
    segments[11] = crafted.batch(11, _TWO)
    directory = crafted.write_partition(_empty(memory) / "t-0", segments)
    wrecked = Wrecked(directory, f"{is_in_place}", LogModel(directory))
    judge(wrecked, with_broker=False)
    assert doors.gaps(directory).ranges(only=(GapReason.COMPACTED,))[:1] == ([range(3)] if is_in_place else [])


@for_each("magic, is_indexed", product((0, 1), (False, True)))
def test_no_message_of_another_file_follows_the_end_that_a_compressed_message_has_inside(
    memory: Path, magic: int, is_indexed: bool
) -> None:
    """Its header states its last offset alone, and the message in the file before states the one after that: by chance,
    as no checksum covers it.
    """
    compressed = crafted.wrapper([3, 4, 5], [*_TWO, (b"d", b"3")], magic)
    first = crafted.message(2, b"e", b"4", magic)
    segments = {0: _ONE + crafted.message(6, b"f", b"5", magic), 2: first + compressed}
    directory = crafted.write_partition(_empty(memory) / "t-0", segments)
    if is_indexed:
        (directory / f"{2:020}.index").write_bytes(struct.pack(">ii", 3, len(first)))
    wrecked = Wrecked(directory, f"{magic}, {is_indexed}", LogModel(directory))
    assert (doors.gaps(directory).end, wrecked.model.missing) == (6, [range(1, 2)])
    judge(wrecked, with_broker=False)


@for_each("magic, cleaned, opens", product((0, 1), (0, 6), (False, True)))
def test_what_a_damaged_compressed_message_may_have_held_is_no_work_of_the_cleaner(
    memory: Path, magic: int, cleaned: int, opens: bool
) -> None:
    """Its header names its last offset alone, and what opens in it is not believed either."""
    broken = bytearray(crafted.wrapper([1, 2], _TWO, magic))
    broken[12:16] = b"#!?#" if opens else broken[12:16]  # the checksum
    broken[-6] ^= 0 if opens else 4
    segments = {0: _ONE + bytes(broken) + crafted.message(3, b"d", b"3", magic), 6: crafted.message(6, b"f", b"6", 1)}
    directory = crafted.write_partition(_empty(memory) / "t-0", segments)
    (directory.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {cleaned}\n")
    judge(Wrecked(directory, f"{magic}, {cleaned}, {opens}", LogModel(directory)), with_broker=False)
    assert doors.gaps(directory).ranges(only=(GapReason.DAMAGED,)) == [range(1, 3)]


REACHING = {
    "a compressed message": crafted.wrapper([2, 3], _TWO, 1),
    "a message": crafted.message(3, *_TWO[0], 1),
    "a batch": crafted.batch(3, _TWO),
}
"""What had offsets 1 and 2, or one of them, with another offset."""


@for_each("name, cleaned", product(REACHING, (0, 6)))
def test_what_reaches_into_a_compressed_message_is_not_given(memory: Path, name: str, cleaned: int) -> None:
    """That states its last offset, so the headers' offsets rise; and before it any hole may be the cleaner's."""
    following = crafted.wrapper([3, 4, 5], [(b"d", b"%d" % offset) for offset in (3, 4, 5)], 0)
    segments = {0: _ONE + REACHING[name] + following, 6: crafted.message(6, b"f", b"6", 1)}
    directory = crafted.write_partition(_empty(memory) / "t-0", segments)
    (directory.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {cleaned}\n")
    judge(Wrecked(directory, f"{name}, cleaned below {cleaned}", LogModel(directory)), with_broker=False)


@pytest.fixture(scope="module")
def of_compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory without records, whose topic t is compacted."""
    root = tmp_path_factory.mktemp("compacted")
    broker = open_broker(root)
    add_topic(broker, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    broker.close()
    for path in (*root.glob("*-checkpoint"), *(root / "t-0").iterdir()):
        if path.name != "partition.metadata":
            path.unlink()
    return root


CLEANED_SEEDS = (4, 167, 292, 328, 367, 2240, 70093)
"""Each failed once."""


@for_each("seed", [*range(FIRST, FIRST + COUNT // 5), *(CLEANED_SEEDS if FIRST == 0 else ())], first=4)
def test_a_start_and_both_cleaners_agree_on_what_others_wrote(memory: Path, of_compacted: Path, seed: int) -> None:
    """The last record of each key stays, and nothing before it; where one batch does not decode, all."""
    segments, what = crafted.random_log(Random(seed), has_odd_wrappers=seed >= 1000)
    alone = crafted.write_partition(_empty(memory) / "alone" / "t-0", segments)
    owned = crafted.write_partition(shutil.copytree(of_compacted, memory / "data" / "owned") / "t-0", segments)
    model = LogModel(alone)
    if model.damage or model.displaced:  # an owner's log ends there
        left, plan = doors.compacted(alone)
        assert plan.refusal is not None, f"seed {seed}: a log that lost something is compacted"
        same_records(left, model.records)
        return
    verdict = _Verdict(Wrecked(alone, f"seed {seed}: {what}", model))
    verdict.ask("a start", lambda: same_records(doors.served(owned, is_owner=True), model.records))
    (left, plan), cleaned = doors.compacted(alone), doors.cleaned(owned)
    verdict.ask("compact beside the cleaner", lambda: same_records(left, cleaned))
    verdict.ask("compact", lambda: is_compacted(left, plan.refusal, model, active=max(segments)))
    verdict.give()


def is_compacted(left: doors.Records, refusal: str | None, model: LogModel, *, active: int) -> None:
    """Tombstones may stay or not; so may the very last message of an old format, which can't stay without records."""
    sealed = [frame for frame in model.log if frame.base < active]
    if model.undecodable & {offset for frame in sealed for offset in range(frame.base, frame.end_offset)}:
        assert refusal is not None, "it does not say that a batch does not decode"
        return
    latest = {key: offset for offset, (key, _) in model.records.items() if key is not None and offset < active}
    must = {
        offset
        for offset, (key, value) in model.records.items()
        if offset >= active or (value is not None and latest.get(key or b"") == offset and key is not None)
    }
    may = must | set(latest.values())
    may |= {frame.end_offset - 1 for frame in sealed[-1:] if frame.magic < 2}
    assert must <= left.keys() <= may, f"without {sorted(must - left.keys())}, with {sorted(left.keys() - may)}"
    assert all(left[offset] == model.records[offset] for offset in left)


UNDECODABLE = [
    *("codec_none_rdkafka", "codec_gzip_java", "codec_snappy_java", "codec_lz4_java", "codec_zstd_java"),
    *("txn_interleaved", "compacted_txn", "multisegment", "idempotent", "deleterecords"),
]


@for_each("name, seed", product(UNDECODABLE, range(3)), first=8)
def test_all_doors_that_decode_name_a_batch_that_does_not(memory: Path, name: str, seed: int) -> None:
    """Under a right checksum, alone and beside other damage; gaps and verify --deep know it as consume does."""
    sound = copy(memory, GOLDEN / name, is_in_data_directory=seed == 1)
    what = [wreck_by(sound.directory, "write_undecodable", seed, LOGS)]
    what += [wreck_by(sound.directory, "flip_bit", seed, LOGS)] if seed == 2 else []
    wrecked = Wrecked(sound.directory, f"{name}: {'; '.join(what)}", LogModel(sound.directory))
    assert wrecked.model.undecodable or seed == 2
    judge(wrecked, with_broker=True)


SEGMENTED_FOLDERS = [path for path in FOLDERS if len(list(path.glob("*.log"))) > 1]


@for_each("seed", some(40), first=8)
def test_all_doors_say_the_same_of_a_segment_that_another_was_written_over(memory: Path, seed: int) -> None:
    """A page of it, or all: what it held is no work of the cleaner's."""
    random = Random(seed)
    source = random.choice([path for path in SEGMENTED_FOLDERS if "compacted" in path.name or seed % 4 == 0])
    sound = copy(memory, source, is_in_data_directory=seed % 3 != 0)
    logs = [path for path in sorted(sound.directory.glob("*.log")) if path.stat().st_size]
    into, other = random.choice(logs[:-1]), random.choice(logs)
    page = other.read_bytes()[: random.choice((4096, 1 << 30))]
    into.write_bytes(page + into.read_bytes()[len(page) :])
    what = f"seed {seed}, {source.name}: {len(page)} bytes of {other.name} over {into.name}"
    judge(Wrecked(sound.directory, what, LogModel(sound.directory)), with_broker=True)


@for_each("seed", some(60), first=8)
def test_all_doors_say_the_same_of_a_segment_that_was_cut_short(memory: Path, seed: int) -> None:
    """Where a batch begins; of most the indexes tell that the cleaner did not do it. Some have other damage."""
    random = Random(seed)
    compacted = [path for path in SEGMENTED_FOLDERS if "compacted" in path.name]
    source = random.choice(compacted if seed % 3 else SEGMENTED_FOLDERS)
    sound = copy(memory, source, is_in_data_directory=seed % 4 != 0)
    what = wreck_by(sound.directory, "cut_at_batch", seed)
    what += f"; {wreck(sound.directory, random)}" if seed % 5 == 0 else ""
    wrecked = Wrecked(sound.directory, f"seed {seed}, {source.name}: {what}", LogModel(sound.directory))
    judge(wrecked, with_broker=True)
    if doors.is_in_data_directory(sound.directory):
        told_by_files = doors.ask_files(sound.directory, read_committed=False).told
        assert bool(doors.ask_server(sound.directory, read_committed=False).told) == bool(told_by_files), wrecked.what


def _name_of(part: Any) -> object:
    return part.name if isinstance(part, GoldenCase) else part


WHOLE = [case for case in golden_cases() if not case.name.startswith("c_")]


@for_each("golden, is_in_data_directory", product(WHOLE, [True, False]), ids=_name_of, first=11)
def test_all_doors_say_that_all_logs_are_gone(memory: Path, golden: GoldenCase, *, is_in_data_directory: bool) -> None:
    sound = copy(memory, golden.directory, is_in_data_directory=is_in_data_directory)
    for path in sound.directory.glob("*.log"):
        path.unlink()
    judge(Wrecked(sound.directory, f"{golden.name} without logs", LogModel(sound.directory)), with_broker=False)
    if is_in_data_directory:
        told_by_files = doors.ask_files(sound.directory, read_committed=False).told
        assert bool(doors.ask_server(sound.directory, read_committed=False).told) == bool(told_by_files)


SEGMENTED = [
    case
    for case in WHOLE
    if case.name in {"multisegment", "txn_multisegment", "compacted_lz4", "v1_multisegment", "deleterecords"}
]
GONE = ["first log", "first segment", "last log", "last log and snapshots"]


@for_each("golden, which", product(SEGMENTED, GONE), ids=_name_of, first=7)
def test_all_doors_say_that_the_first_or_last_segment_is_gone(memory: Path, golden: GoldenCase, which: str) -> None:
    is_in_data_directory = Random(f"{golden.name} {which}").random() < 0.6
    sound = copy(memory, golden.directory, is_in_data_directory=is_in_data_directory)
    directory = sound.directory
    logs = sorted(directory.glob("*.log"))
    log = logs[0] if which.startswith("first") else logs[-1]
    gone = [*directory.glob(f"{log.stem}.*")] if which == "first segment" else [log]
    for path in [*gone, *(directory.glob("*.snapshot") if which.endswith("snapshots") else ())]:
        path.unlink()
    has_epochs = (directory / "leader-epoch-checkpoint").exists()  # old formats have none
    has_start = int(logs[0].stem) == 0  # of what retention took, no epoch is left
    model = LogModel(directory)
    wrecked = Wrecked(directory, f"{golden.name} without its {which}", model)
    judge(wrecked, with_broker=True)
    if which != "first segment" or (has_epochs and has_start):
        assert doors.ask_files(directory, read_committed=False).told
        assert doors.losses(doors.gaps(directory))
        assert not is_in_data_directory or doors.ask_server(directory, read_committed=False).told
        if is_in_data_directory and which.startswith("first"):  # offsets lost at the end are given again by an owner
            told = doors.ask_server(directory, read_committed=False, is_owner=True).told
            lost = f"offsets {model.log_start} to {int(logs[1].stem) - 1} "
            assert any(lost in text for text in told), f"{told} does not name {lost}"


# --- the commands, and a server


CONSUME = ["--isolation", "read_uncommitted", "--no-exit-on-error", "--format", "%o\\n"]
CONSUME_COMMITTED = ["--isolation", "read_committed", *CONSUME[2:]]


@for_each("seed", range(10))
def test_the_commands_say_the_same_and_never_in_silence(memory: Path, seed: int) -> None:
    """consume and gaps end with 1, and say why, where an offset is lost; gaps and verify name the same offsets."""
    wrecked = make(memory, seed)
    directory, model = wrecked.directory, wrecked.model
    topic = directory.name.rpartition("-")[0]
    data_dir = directory.parent if doors.is_in_data_directory(directory) else directory
    verdict = _Verdict(wrecked)
    consumed = call_plog("consume", topic, "--data-dir", str(data_dir), *CONSUME)
    account = gaps_command(directory)
    lost = doors.merged(
        range(g["start_offset"], g["end_offset"]) for g in account if GapReason(g["reason"]) in LOSING_REASONS
    )
    verdict.ask_of("plog consume", [int(line) for line in consumed.stdout.split()])
    verdict.ask("plog consume", lambda: tells(consumed, is_lossy=bool(lost)))
    unread = [range(g["start_offset"], g["end_offset"]) for g in account]
    verdict.ask("plog gaps", lambda: same_ranges([r for r in unread if r.start >= model.log_start], model.unread))
    verdict.ask("plog gaps", lambda: same_ranges(lost, _losses(directory)))
    verdict.give()


def gaps_command(directory: Path) -> list[dict[str, Any]]:
    done = call_plog("gaps", str(directory), "--isolation", "read_uncommitted", "--output", "ndjson")
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tells(done: subprocess.CompletedProcess[bytes], *, is_lossy: bool) -> None:
    assert done.returncode in (0, 1), f"exit {done.returncode}: {done.stderr.decode()[:300]}"
    assert not is_lossy or done.returncode == 1, "exit 0 though offsets are lost"
    assert not is_lossy or done.stderr, "nothing is said of what is lost"


@pytest.mark.longer
def test_a_server_that_only_reads_gives_the_same(memory: Path, tmp_path: Path) -> None:
    """Damaged partitions of one data directory, over the network: some drawn by chance, what failed once, and the
    golden ones.
    """
    root = tmp_path / "data"
    root.mkdir()
    (root / "meta.properties").write_bytes((GOLDEN / "_root" / "meta.properties").read_bytes())
    wrecked: dict[str, Wrecked] = {}

    def take(topic: str, source: Path, what: str) -> None:
        directory = shutil.copytree(source, root / f"{topic}-0", symlinks=True)
        (directory / "partition.metadata").unlink(missing_ok=True)  # of topics that no metadata log knows
        wrecked[topic] = Wrecked(directory, what, LogModel(directory))

    for seed in (*range(40), *KEPT_SEEDS):
        case = make(memory, seed)
        if case.model.damage and (seed in KEPT_SEEDS or not doors.is_in_data_directory(case.directory)):
            take(f"t{seed}", case.directory, case.what)
    for folder in sorted(DAMAGED.glob("*/*-0")):
        if folder.parent.name not in NOT_SERVED:
            take(f"golden{folder.parent.name[:3].rstrip('-')}", folder, folder.parent.name)
    assert len(wrecked) >= 30
    wrong = []
    with Server(root, "--read-only") as server:
        for topic, case in wrecked.items():
            done = call_plog("consume", topic, "--bootstrap-server", server.address, *CONSUME)
            verdict = _Verdict(case)
            verdict.ask_of("plog consume from a server", [int(line) for line in done.stdout.split()])
            if case.model.transactional:
                done = call_plog("consume", topic, "--bootstrap-server", server.address, *CONSUME_COMMITTED)
                given = [int(line) for line in done.stdout.split()]
                expected = committed(case.directory, case.model)
                verdict.ask("the same at read_committed", partial(same_offsets, given, expected))
            wrong += verdict.wrong
    assert not wrong, "\n".join(wrong)


DAMAGED = GOLDEN.parent / "damage"
NOT_SERVED = {"21-dangling-symlink-log", "23-40MB-batch-is-sound"}
"""The first has a log that a broker can't open, the second nothing that is damaged, and much of it."""
