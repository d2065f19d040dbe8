"""Recoveries beyond a log's own bytes: what stands beside it, the root, and taking it all back, from any step."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from core.common.errors import AccessError, DirectoryLockedError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.directory_lock import DirectoryLock
from core.files.file_names import META_PROPERTIES
from core.forensics.recovery_journal import JOURNAL, RecoveryJournal, clear_unfinished, read_lost_offsets, undo
from core.inspector.check.verify import verify
from core.inspector.recover.recovery import Recovery
from core.inspector.recover.recovery_plan import Action, FolderPlan, RecoveryOptions, step_text, unfitting_ends
from core.inspector.recover.recovery_planner import plan_recovery
from tests.support import doors
from tests.support.damage import places
from tests.support.for_each import for_each
from tests.support.logs import FullDisk, append, append_marker, fingerprint, make_batch, open_log

SALVAGE = RecoveryOptions()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Partitions t-0 and t-1 of three segments each, offsets 0 to 19."""
    root = tmp_path / "data"
    for number in range(2):
        log = open_log(root / f"t-{number}", segment_bytes=700, index_interval_bytes=100)
        for _ in range(10):
            append(log, make_batch(b"a" * 40, b"b" * 40))
        log.close()
        (root / f"t-{number}" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    return root


def make_data_directory(root: Path) -> None:
    text = "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    (root / META_PROPERTIES).write_text(text)


def damage(folder: Path, number: int) -> None:
    """The value of a batch, beyond any one bit."""
    place = places(folder)[number]
    with place.path.open("r+b") as file:
        file.seek(place.end - 20)
        file.write(b"#!?" * 5)


def plans(path: Path, options: RecoveryOptions = SALVAGE) -> list[FolderPlan]:
    return list(plan_recovery(path, options, is_locked=True))


def recover(path: Path, root: Path, options: RecoveryOptions = SALVAGE, filesystem: FileSystem | None = None) -> None:
    with Recovery(root, filesystem) as recovery:
        recovery.apply(plans(path, options))


@for_each("number, bit", [(9, 45), (9, 62), (6, 40), (0, 33)])
def test_a_batch_with_a_flipped_bit_in_its_base_offset_as_well_is_mended(data_dir: Path, number: int, bit: int) -> None:
    folder = data_dir / "t-0"
    before = doors.consume(folder)
    place = places(folder)[number]
    data = bytearray(place.path.read_bytes())
    data[place.position + 7 - bit // 8] ^= 1 << bit % 8
    data[place.end - 20] ^= 1
    place.path.write_bytes(data)
    recover(folder, data_dir, RecoveryOptions(fixes_bits=True))
    assert doors.consume(folder) == before
    assert not list(verify(data_dir))


def test_a_plan_changes_nothing(data_dir: Path) -> None:
    damage(data_dir / "t-0", 3)
    before = fingerprint(data_dir)
    (plan,) = plans(data_dir)
    cut = plan.steps[0]
    assert (cut.action, cut.offset, cut.last_offset, cut.records) == (Action.CUT_OUT, 6, 7, 2)
    assert plan.lost() == [(6, 8)]
    assert "offsets 6 to 7, records lost: 2\n" in step_text(cut)
    assert ", offset 0, records lost: 2\n" in step_text(replace(cut, offset=0, last_offset=0))
    assert fingerprint(data_dir) == before


def test_the_indexes_of_a_missing_segment_in_which_the_log_starts_stay(data_dir: Path) -> None:
    """They alone say that it was there, until the user gives it up."""
    folder, log = data_dir / "t-0", sorted((data_dir / "t-0").glob("*.log"))
    (data_dir / "log-start-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    log[0].unlink()
    lost = [range(3, int(log[1].stem))]
    assert doors.losses(doors.gaps(folder)) == lost
    recover(folder, data_dir)
    assert doors.losses(doors.gaps(folder)) == lost
    assert plans(folder, RecoveryOptions(accepts_missing=True))[0].lost() == [(3, lost[0].stop)]


def test_only_what_is_damaged_changes(data_dir: Path) -> None:
    damage(data_dir / "t-0", 3)
    other = fingerprint(data_dir / "t-1")
    segments = {p.name: p.read_bytes() for p in (data_dir / "t-0").glob("*.log")}
    recover(data_dir, data_dir)
    assert list(verify(data_dir)) == []
    assert fingerprint(data_dir / "t-1") == other
    changed = [name for name, data in segments.items() if (data_dir / "t-0" / name).read_bytes() != data]
    assert len(changed) == 1
    assert (data_dir / "t-0" / f"{changed[0]}.before-recovery-1").read_bytes() == segments[changed[0]]
    assert read_lost_offsets(data_dir / "t-0") == [(6, 8)]
    make_data_directory(data_dir)
    assert list(verify(data_dir)) == [], "what was given up is no finding"
    (data_dir / "t-0" / JOURNAL).unlink()
    assert [f.code.value for f in verify(data_dir)] == ["offsets-missing"]


CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def test_checkpoints_never_name_what_is_gone_and_one_that_does_not_parse_is_set_aside(data_dir: Path) -> None:
    make_data_directory(data_dir)
    for name in CHECKPOINTS:
        (data_dir / name).write_text("0\n2\nt 0 20\nt 1 20\n")
    (data_dir / "log-start-offset-checkpoint").write_text("nonsense")
    damage(data_dir / "t-0", 3)
    recover(data_dir, data_dir, RecoveryOptions(is_like_kafka=True))
    for name in CHECKPOINTS:
        assert (data_dir / name).read_text() == "0\n2\nt 0 6\nt 1 20\n"
        assert (data_dir / f"{name}.before-recovery-1").exists()
    assert not (data_dir / "log-start-offset-checkpoint").exists()
    assert (data_dir / "log-start-offset-checkpoint.before-recovery-1").read_text() == "nonsense"
    assert list(verify(data_dir)) == []
    assert [p.name for p in sorted((data_dir / "t-0").glob("*.log"))][-1] <= f"{6:020d}.log"


def test_checkpoints_that_a_killed_recovery_left_are_made_to_fit_by_the_next(data_dir: Path) -> None:
    """It died after the folder and before the root: the folder is clean by then, as its journal gave the end up."""
    make_data_directory(data_dir)
    for name in CHECKPOINTS:
        (data_dir / name).write_text("0\n2\nt 0 20\nt 1 20\n")
    damage(data_dir / "t-0", 9)
    before = {path.name: path.read_bytes() for path in data_dir.iterdir() if path.is_file()}
    recover(data_dir, data_dir)
    done = {name: (data_dir / name).read_text() for name in CHECKPOINTS}
    assert done == dict.fromkeys(CHECKPOINTS, "0\n2\nt 0 18\nt 1 20\n")
    for path in data_dir.iterdir():
        if path.is_file():
            path.unlink()
    for name, data in before.items():
        (data_dir / name).write_bytes(data)
    assert list(verify(data_dir)) == []
    for folder in (data_dir, data_dir / "t-0"):
        assert unfitting_ends(folder, data_dir) == {TopicPartition("t", 0): 18}
    with Recovery(data_dir) as recovery:
        assert recovery.fit_checkpoints(data_dir)
        assert not recovery.fit_checkpoints(data_dir)
    assert {name: (data_dir / name).read_text() for name in CHECKPOINTS} == done
    with Recovery(data_dir) as recovery:
        recovery.undo([data_dir / "t-0"])
    assert {name: (data_dir / name).read_bytes() for name in CHECKPOINTS} == {
        name: before[name] for name in CHECKPOINTS
    }


def test_checkpoints_of_a_log_that_was_written_to_since_a_recovery_stay(data_dir: Path) -> None:
    make_data_directory(data_dir)
    damage(data_dir / "t-0", 9)
    recover(data_dir, data_dir)
    log = open_log(data_dir / "t-0", segment_bytes=700, index_interval_bytes=100)
    append(log, make_batch(b"c"))
    log.close()
    (data_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    assert unfitting_ends(data_dir, data_dir) == {}


def test_a_topic_id_is_restored_from_the_other_partitions(data_dir: Path) -> None:
    path = data_dir / "t-1" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: ?")
    (plan,) = plans(data_dir)
    assert [step.action for step in plan.steps] == [Action.RESTORE]
    recover(data_dir, data_dir)
    assert path.read_text() == (data_dir / "t-0" / "partition.metadata").read_text()
    path.unlink()
    path.symlink_to("nowhere")  # files that can't be read stay as they are, but for one that is restored
    recover(data_dir, data_dir)
    assert path.read_text() == (data_dir / "t-0" / "partition.metadata").read_text()


def test_what_nothing_knows_can_not_be_mended(data_dir: Path) -> None:
    shutil.rmtree(data_dir / "t-0")
    (data_dir / "t-1" / "partition.metadata").write_text("version: 0\ntopic_id: ?")
    (plan,) = plans(data_dir)
    assert [step.action for step in plan.steps] == [Action.NONE]
    assert not plan.is_needed


@for_each("suffix", ["index", "timeindex", "txnindex", "snapshot"])
def test_files_beside_the_log_are_made_again(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "t-0"
    log = open_log(folder, segment_bytes=700, index_interval_bytes=100)
    sequence = 0
    for number in range(12):
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
        append(log, make_batch(b"a" * 40, b"b" * 40, **producer))
        sequence += 2
        if number % 3 == 2:
            append_marker(log, 7, is_commit=number % 2 == 0)
    log.close()
    for path in folder.glob(f"*.{suffix}"):
        whole = path.read_bytes()
        if not whole:
            continue
        for content in (whole[:-1], whole[:-3] + b"\x11\x22\x33", b"\xff" * len(whole)):
            path.write_bytes(content)
            assert list(verify(folder))
            recover(folder, tmp_path)
            assert list(verify(folder)) == []
            if suffix == "txnindex":
                assert path.read_bytes() == whole
            undo(folder, FileSystem())
            assert path.read_bytes() == content
            path.write_bytes(whole)


def test_an_unfinished_compaction_is_ended(data_dir: Path) -> None:
    folder = data_dir / "t-0"
    shutil.copy(sorted(folder.glob("*.log"))[0], folder / "00000000000000000000.log.cleaned")
    assert [f.code.value for f in verify(folder)] == ["unfinished-swap"]
    recover(folder, data_dir)
    assert list(verify(folder)) == []
    assert not list(folder.glob("*.cleaned"))


# --- taking it back


class _CrashError(Exception):
    pass


class CrashingFileSystem(FileSystem):
    """Dies at the n-th operation that changes a name."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _step(self) -> None:
        if self.left == 0:
            raise _CrashError
        self.left -= 1

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        super().rename(old, new)

    def link(self, path: Path, name: Path) -> None:
        self._step()
        super().link(path, name)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)

    def sync_directory(self, path: Path) -> None:
        self._step()
        super().sync_directory(path)

    def remove_tree(self, path: Path) -> None:
        FileSystem().remove_tree(path)


def test_a_recovery_that_died_at_any_step_is_taken_back_whole(data_dir: Path, tmp_path: Path) -> None:
    folder = data_dir / "t-0"
    damage(folder, 2)
    damage(folder, 7)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    steps = 0
    while True:
        filesystem = CrashingFileSystem(steps)
        try:
            recover(folder, data_dir, RecoveryOptions(is_like_kafka=True), filesystem)
        except _CrashError:
            pass
        else:
            break
        finally:
            undo(folder, FileSystem())
            after = {p.name: p.read_bytes() for p in folder.iterdir()}
        assert {name: after.get(name) for name in before} == before, steps
        assert all(name.endswith((".tmp", "-1")) or name == JOURNAL for name in after.keys() - before.keys()), (
            after.keys()
        )
        shutil.rmtree(folder)
        folder.mkdir()
        for name, data in before.items():
            (folder / name).write_bytes(data)
        steps += 1
    assert steps > 20


def test_taking_back_that_died_at_any_step_is_done_by_whatever_comes_next(data_dir: Path, tmp_path: Path) -> None:
    folder = data_dir / "t-0"
    damage(folder, 2)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    recover(folder, data_dir)
    recovered = shutil.copytree(folder, tmp_path / "recovered")
    steps = 0
    while True:
        try:
            undo(folder, CrashingFileSystem(steps))
        except _CrashError:
            pass
        else:
            break
        clear_unfinished(folder, FileSystem())
        after = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert after == before
        shutil.rmtree(folder)
        shutil.copytree(recovered, folder)
        steps += 1
    assert steps > 5


def test_a_file_has_its_name_while_another_takes_its_place_and_a_folder_goes_aside(tmp_path: Path) -> None:
    """Whoever reads beside a recovery finds one or the other."""
    (tmp_path / "0.log").write_bytes(b"old")
    (tmp_path / "0.index").mkdir()
    (tmp_path / "new").write_bytes(b"new")

    class WatchedFileSystem(FileSystem):
        def rename(self, old: Path, new: Path) -> None:
            super().rename(old, new)
            assert (tmp_path / "0.log").exists()

    journal = RecoveryJournal(tmp_path, [], WatchedFileSystem())
    journal.replace("0.log", tmp_path / "new")
    journal.replace("0.index", None)
    journal.finish()
    assert (tmp_path / "0.log").read_bytes() == b"new"
    assert not (tmp_path / "0.index").exists()
    undo(tmp_path, FileSystem())
    assert (tmp_path / "0.log").read_bytes() == b"old"
    assert (tmp_path / "0.index").is_dir()


def test_runs_are_taken_back_one_by_one(data_dir: Path) -> None:
    folder = data_dir / "t-0"
    states = []
    for number in (2, 1):
        damage(folder, number)
        states.append({p.name: p.read_bytes() for p in folder.glob("*.log")})
        recover(folder, data_dir)
    assert read_lost_offsets(folder) == [(2, 6)]
    assert not [f for f in verify(folder) if f.records], "what two of them gave up side by side is one hole"
    for state in reversed(states):
        undo(folder, FileSystem())
        assert {p.name: p.read_bytes() for p in folder.glob("*.log")} == state
        if state is states[1]:
            assert read_lost_offsets(folder) == [(4, 6)]
    assert not (folder / JOURNAL).exists()
    assert undo(folder, FileSystem()) == 0


@pytest.mark.parametrize("target", ["nowhere", "", "/dev/null"], ids=["that leads nowhere", "to itself", "to a device"])
def test_a_link_in_an_indexs_place_is_put_back(data_dir: Path, target: str) -> None:
    """Under the name that it is kept by, a link to itself leads to the file that took its place."""
    folder = data_dir / "t-0"
    index = folder / "00000000000000000000.timeindex"
    index.unlink()
    index.symlink_to(target or index.name)
    recover(folder, data_dir)
    assert not index.is_symlink()
    undo(folder, FileSystem())
    assert str(index.readlink()) == (target or index.name)
    assert not list(folder.glob("*before-recovery*"))


def test_none_is_taken_back_where_one_was_written_to_since(data_dir: Path) -> None:
    for number in range(2):
        damage(data_dir / f"t-{number}", 3)
    recover(data_dir, data_dir)
    log = open_log(data_dir / "t-1", segment_bytes=700)
    append(log, make_batch(b"new"))
    log.close()
    before = fingerprint(data_dir)
    with Recovery(data_dir) as recovery, pytest.raises(AccessError, match="was written to since"):
        recovery.undo([data_dir / "t-0", data_dir / "t-1"])
    with pytest.raises(AccessError, match="was written to since"):
        undo(data_dir / "t-1", FileSystem())
    assert fingerprint(data_dir) == before


def test_an_end_that_was_given_up_explains_no_later_hole(data_dir: Path) -> None:
    """What is appended after it takes the same offsets: a batch of it that goes missing is a finding."""
    make_data_directory(data_dir)
    folder = data_dir / "t-0"
    damage(folder, 3)
    recover(data_dir, data_dir, RecoveryOptions(is_like_kafka=True))
    log = open_log(folder, segment_bytes=100_000)
    for _ in range(5):
        append(log, make_batch(b"a" * 40, b"b" * 40))
    log.close()
    assert list(verify(data_dir)) == []
    gone = places(folder)[-3]
    assert gone.offset > 6
    data = gone.path.read_bytes()
    gone.path.write_bytes(data[: gone.position] + data[gone.end :])
    assert "offsets-missing" in [finding.code.value for finding in verify(data_dir)]


def test_what_the_cleaner_took_between_two_losses_stays_the_cleaners(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The recovery takes away what showed where the second loss begins. What is left is one hole, for two reasons."""
    make_data_directory(data_dir)
    folder = data_dir / "t-0"
    cleaned = places(folder)[3]
    (data_dir / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 8\n")
    damage(folder, 2)
    with cleaned.path.open("r+b") as file:
        file.truncate(cleaned.position)
    for index in folder.glob("00000000000000000000.*index"):
        index.unlink()
    (folder / "00000000000000000008.log").unlink()
    reasons = [(4, 6, "damaged"), (6, 8, "compacted"), (8, 16, "damaged")]
    assert [(gap.start, gap.end, gap.reason.value) for gap in doors.gaps(folder).gaps] == reasons
    recover(data_dir, data_dir, RecoveryOptions(accepts_missing=True))
    left = [(4, 6, "truncated"), (6, 8, "compacted"), (8, 16, "truncated")]
    assert [(gap.start, gap.end, gap.reason.value) for gap in doors.gaps(folder).gaps] == left
    assert list(verify(data_dir)) == []
    assert doors.ask_files(folder, read_committed=False).told == []
    for is_owner in (False, True):
        caplog.clear()
        assert doors.ask_server(folder, read_committed=False, is_owner=is_owner).told == []
        assert "nothing proves" not in caplog.text


def test_a_full_disk_is_said_and_loses_nothing(data_dir: Path) -> None:
    damage(data_dir / "t-0", 3)
    before = {p.name: p.read_bytes() for p in (data_dir / "t-0").iterdir()}
    disk = FullDisk()
    disk.is_full = True
    with pytest.raises(AccessError, match=r"could not recover .*t-0: no space left"):
        recover(data_dir, data_dir, filesystem=disk)
    assert {p.name: p.read_bytes() for p in (data_dir / "t-0").iterdir()} == before


def test_a_journal_leads_nowhere_else(data_dir: Path, tmp_path: Path) -> None:
    folder = data_dir / "t-0"
    secret = tmp_path / "secret"
    secret.write_text("x")
    (folder / JOURNAL).write_text('{"run": 1, "name": "../../secret", "was": null}\n{"run": 1, "logs": {}}\n')
    with pytest.raises(Exception, match="no entry of a recovery journal"):
        undo(folder, FileSystem())
    assert secret.exists()


def test_a_directory_in_use_is_left_alone(data_dir: Path) -> None:
    damage(data_dir / "t-0", 3)
    lock = DirectoryLock(data_dir)
    lock.acquire()
    before = fingerprint(data_dir)
    with pytest.raises(DirectoryLockedError):
        recover(data_dir, data_dir)
    assert fingerprint(data_dir) == before
    lock.release()
