"""Whatever can't be read in a data directory is told of, and nothing else suffers: no command hangs, ends in a bug of
its own, needs much memory, or leaves out what it could have given.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.files.file_names import LOG_START_OFFSET_CHECKPOINT, parse_offset_file_name
from core.inspector.check.file_kind import kind_of
from core.inspector.check.findings import Code, Finding
from core.inspector.check.verify import verify
from core.inspector.recover.recovery_plan import Action, RecoveryOptions
from core.inspector.recover.recovery_planner import plan_recovery
from tests.support.bad_disk import break_disk, refuse
from tests.support.broker import SteeredNode
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.logs import append, fingerprint, make_batch, open_log
from tests.support.server import call_plog

BROKEN, OTHER = "txn_multisegment", "multisegment"
OTHER_OFFSETS = [str(offset) for offset in range(330)]
MIDDLE = "00000000000000000118.log"
MIB = 1024 * 1024


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Kafka's own root, with two partitions."""
    root = tmp_path / "data"
    shutil.copytree(GOLDEN / "_root", root)
    for topic in (BROKEN, OTHER):
        shutil.copytree(GOLDEN / topic, root / f"{topic}-0")
    for path in root.glob("*-offset-checkpoint"):
        lines = path.read_text().split("\n")[2:]
        kept = [line for line in lines if line.rsplit(" ", 1)[0] in (f"{BROKEN} 0", f"{OTHER} 0")]
        path.write_text("\n".join(["0", str(len(kept)), *kept, ""]))
    sizes = {path.name: path.stat().st_size for path in root.glob(f"{BROKEN}-0/*.log")}
    journal = [{"run": 1, "lost": []}, {"run": 1, "logs": sizes}]
    (root / f"{BROKEN}-0" / "recovery-journal").write_text("".join(json.dumps(line) + "\n" for line in journal))
    (root / f"{BROKEN}-0" / "damaged-ranges").write_text("0\n0\n")
    (root / ".lock").touch()
    (root / "bootstrap.checkpoint").unlink()
    assert list(verify(root)) == []
    return root


def files(root: Path) -> list[Path]:
    return sorted(path for folder in (root, root / f"{BROKEN}-0") for path in folder.iterdir() if path.is_file())


def consumed(root: Path, topic: str, *options: str) -> tuple[int, list[str], str]:
    done = call_plog("consume", topic, "--data-dir", str(root), "--format", "%o\n", *options)
    return done.returncode, done.stdout.decode().split(), done.stderr.decode()


def ensure_whole(root: Path, broken: Path) -> None:
    """All of the other topic comes; of what DeleteRecords took nothing can be said without that checkpoint."""
    code, offsets, said = consumed(root, OTHER)
    assert (code, offsets) == (0, OTHER_OFFSETS), broken.name
    is_note = said.startswith(f"note: could not read {broken}") and said.count("\n") == 1
    assert is_note if broken.name == LOG_START_OFFSET_CHECKPOINT else not said, (broken.name, said)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("/not/mounted")


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


COMMANDS = (
    ["verify", "{root}", "--deep", "--output", "json"],
    ["recover", "{root}", "--output", "json"],
    ["recover", "{root}", "--like-kafka"],
    ["dump-segment", "{root}", "--print-data-log", "--format", "kafka"],
    ["dump-segment", "{root}", "--hex"],
    ["dump-segment", "{root}", "--verify-index-only"],
    ["gaps", "{root}"],
    ["stats", "{root}"],
    ["doctor", "{root}"],
    ["diff", "{root}/txn_multisegment-0", "{root}/txn_multisegment-0"],
    ["compact", "{root}", "--set", "cleanup.policy=compact"],
    ["consume", "txn_multisegment", "--data-dir", "{root}", "--no-exit-on-error"],
    ["consume", "txn_multisegment", "--data-dir", "{root}", "--from", "2013-01-01T00:00:00Z"],
    ["trace", "txn_multisegment@3", "--data-dir", "{root}"],
    ["topic", "list", "--data-dir", "{root}"],
    ["topic", "describe", "txn_multisegment", "--data-dir", "{root}"],
    ["transaction", "list", "--data-dir", "{root}"],
    ["verify", "{root}/txn_multisegment-0", "--output", "ndjson"],
)


@pytest.mark.longer
@pytest.mark.parametrize("kind", [pipe, folder, dangling, loop], ids=lambda kind: kind.__name__)
def test_any_file_that_is_none(kind: Callable[[Path], None], data_dir: Path, tmp_path: Path) -> None:
    """Each file in turn: verify names it, the other topic is whole, and every command comes to an end."""
    for number, name in enumerate(path.relative_to(data_dir) for path in files(data_dir)):
        root = tmp_path / f"copy-{number}"
        shutil.copytree(data_dir, root)
        broken = root / name
        kind(broken)
        if kind_of(broken) is not None:
            assert (str(broken), Code.UNREADABLE) in [(f.path, f.code) for f in verify(root)], name
        ensure_whole(root, broken)
        for arguments in COMMANDS[number % 3 :: 3]:
            done = call_plog(*(argument.format(root=root) for argument in arguments))
            assert done.returncode in (0, 1, 3), (name, arguments, done.stderr.decode())
        is_log = (parse_offset_file_name(broken.name) or (0, ""))[1] == ".log"
        done = call_plog("recover", str(root), "--apply")
        assert done.returncode in (0, 1) + (3,) * (broken.name in (".lock", "recovery-journal")), done.stderr.decode()
        if is_log:  # what is in it may be had again
            assert os.path.lexists(broken)
        shutil.rmtree(root)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def full_folder(path: Path) -> None:
    folder(path)
    (path / "somebody's").write_text("work")


def state(root: Path) -> dict[str, object]:
    """Of every name what it is: a file's content, where a link leads, a folder, a pipe."""

    def what(path: Path) -> object:
        if path.is_symlink():
            return path.readlink()
        return path.read_bytes() if path.is_file() else path.is_dir()

    return {str(path.relative_to(root)): what(path) for path in root.rglob("*")}


MENDED = (
    "index",
    "timeindex",
    "txnindex",
    "snapshot",
    "leader-epoch-checkpoint",
    "damaged-ranges",
    "-offset-checkpoint",
)


@for_each("kind", [pipe, full_folder, dangling, loop, device])
def test_what_stands_in_the_place_of_a_file_that_can_be_made_again_is_set_aside(
    kind: Callable[[Path], None], data_dir: Path, tmp_path: Path
) -> None:
    """One recovery mends it, and taking that back brings everything back as it was."""
    root = Path(shutil.copytree(data_dir, tmp_path / "copy"))
    for path in files(root):
        if path.name.endswith(MENDED) and not (path.parent == root and kind is full_folder):
            kind(path)
    before = state(root)
    done = call_plog("recover", str(root), "--apply")
    assert done.returncode == 0, done.stderr.decode()
    assert list(verify(root)) == []
    for topic in (BROKEN, OTHER):
        assert consumed(root, topic)[0] == 0
    assert call_plog("recover", str(root), "--undo").returncode == 0
    assert state(root) == before


def test_any_file_that_may_not_be_read(data_dir: Path) -> None:
    for path in files(data_dir):
        if kind_of(path) is None:
            continue
        with pytest.MonkeyPatch.context() as patch:
            refuse(patch, path)
            (finding,) = (f for f in verify(data_dir) if f.path == str(path))
            assert finding.code is Code.UNREADABLE
            assert finding.message.endswith("permission denied (errno 13)")
            ensure_whole(data_dir, path)
            for arguments in COMMANDS[: 4 if path.suffix == ".log" else 1]:
                assert call_plog(*(a.format(root=data_dir) for a in arguments)).returncode == 1


@pytest.mark.longer
def test_any_file_with_a_bad_sector(data_dir: Path) -> None:
    before = fingerprint(data_dir)
    for number, path in enumerate(files(data_dir)):
        if kind_of(path) is None or not path.stat().st_size:
            continue
        with pytest.MonkeyPatch.context() as patch:
            break_disk(patch, {path: [path.stat().st_size - 1]}, 512)
            found = [f for f in verify(data_dir) if f.path == str(path)]
            assert {f.code for f in found} == {Code.UNREADABLE}, path
            assert "input/output error (errno 5)" in found[0].message
            assert found[0].position >= 0
            ensure_whole(data_dir, path)
            for arguments in COMMANDS[number % 3 :: 3]:
                done = call_plog(*(a.format(root=data_dir) for a in arguments))
                assert done.returncode in (0, 1, 3), (path, arguments, done.stderr.decode())
    assert fingerprint(data_dir) == before


# --- a folder


@for_each(
    "name, is_foreign",
    [
        ("plain-0.bak", True),
        ("lost+found", True),
        ("recovering", True),
        ("t-0.x-delete", False),
        ("t-0.0123456789abcdef0123456789abcdef-stray", False),
        ("t-0.0123456789abcdef0123456789abcdef-future", False),
        ("remote-log-index-cache", False),
    ],
)
def test_verify_notes_a_folder_that_kafka_would_not_start_with(name: str, is_foreign: bool, data_dir: Path) -> None:
    """As UnifiedLog.parseTopicPartitionName has it."""
    (data_dir / name).mkdir()
    done = call_plog("verify", str(data_dir))
    assert done.returncode == 0
    assert (f"note: {data_dir / name} was not checked" in done.stderr.decode()) == is_foreign
    beside = call_plog("verify", str(data_dir.parent))  # which is no data directory
    assert b"note: " not in beside.stderr
    shutil.copy(GOLDEN / OTHER / MIDDLE, data_dir / name)
    done = call_plog("verify", str(data_dir))
    assert done.returncode == is_foreign, "no command reads its records"
    assert ("folder-misnamed" in done.stdout.decode()) == is_foreign
    assert b"note: " not in done.stderr
    shutil.rmtree(data_dir / name)


def test_a_folder_that_may_not_be_read(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = data_dir / f"{BROKEN}-0"
    refuse(monkeypatch, broken)
    (finding,) = verify(data_dir)
    assert (finding.path, finding.code) == (str(broken), Code.UNREADABLE)
    assert consumed(data_dir, OTHER) == (0, OTHER_OFFSETS, "")
    for arguments in COMMANDS:
        done = call_plog(*(a.format(root=data_dir) for a in arguments))
        assert done.returncode in (0, 1, 3), (arguments, done.stderr.decode())
    code, offsets, said = consumed(data_dir, OTHER, "--no-exit-on-error")
    done = call_plog("consume", BROKEN, OTHER, "--data-dir", str(data_dir), "--format", "%t %o\n", "--no-exit-on-error")
    assert done.stdout.decode().split("\n")[:-1] == [f"{OTHER} {offset}" for offset in OTHER_OFFSETS]
    assert f"could not read {broken}: permission denied" in done.stderr.decode()
    assert (code, offsets, said) == (0, OTHER_OFFSETS, "")


ASKED = (
    ["verify", "{path}"],
    ["verify", "{path}", "--deep"],
    ["recover", "{path}"],
    ["recover", "{path}", "--apply"],
    ["gaps", "{path}"],
    ["stats", "{path}"],
    ["consume", BROKEN, "--data-dir", "{path}"],
    ["consume", BROKEN, "--data-dir", "{path}", "--no-exit-on-error"],
    ["trace", f"{BROKEN}@3", "--data-dir", "{path}"],
)


def test_a_path_that_cant_be_read_is_3_and_a_folder_in_it_is_1(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = data_dir / f"{BROKEN}-0"
    refuse(monkeypatch, broken)
    for (path, code), arguments in product(((data_dir, 1), (broken, 3)), ASKED):
        done = call_plog(*(argument.format(path=path) for argument in arguments))
        assert done.returncode == code, (arguments, done.stderr.decode())
        assert f"{broken}" in (done.stdout + done.stderr).decode()
        assert b"permission denied" in done.stdout + done.stderr
        assert b"nothing to recover" not in done.stderr
        if code == 3:
            assert done.stderr.startswith(b"error: could not read ")
    copy = ["diff", str(broken), str(data_dir / f"{OTHER}-0")]
    assert call_plog(*copy).returncode == 3


def test_the_neighbour_of_a_log_that_cant_be_opened_is_not_blamed(data_dir: Path) -> None:
    """Nor is the log itself told of twice."""
    broken = data_dir / f"{OTHER}-0" / "00000000000000000118.log"
    pipe(broken)
    of_stats = call_plog("stats", str(data_dir / f"{OTHER}-0")).stderr.decode()
    of_diff = call_plog("diff", str(data_dir / f"{OTHER}-0"), str(GOLDEN / OTHER)).stderr.decode()
    for said in (of_stats, of_diff):
        (line,) = (line for line in said.splitlines() if line.startswith("error: "))
        assert line.startswith(f"error: {broken}")
        assert "offset 118 to 231: unreadable: could not be read: " in line.replace(" position 0", "")
        assert "is a named pipe" in line


def test_a_stray_folder_where_no_offset_is_missing_is_told_by_every_command(data_dir: Path) -> None:
    broken = data_dir / f"{OTHER}-0" / "00000000000000000001.log"
    broken.mkdir()
    where = f"{data_dir}/{OTHER}-0"
    for arguments in (
        ["gaps", where],
        ["stats", where],
        ["verify", where],
        ["diff", where, str(GOLDEN / OTHER)],
        ["consume", OTHER, "--data-dir", str(data_dir)],
    ):
        done = call_plog(*arguments)
        assert (done.returncode, str(broken) in (done.stdout + done.stderr).decode()) == (1, True), arguments
    code, offsets, said = consumed(data_dir, OTHER, "--no-exit-on-error")
    assert (code, offsets, str(broken) in said) == (1, OTHER_OFFSETS, True)
    code, offsets, said = consumed(data_dir, OTHER, "--from", "2")  # which it can't hold
    assert (code, offsets, said) == (0, OTHER_OFFSETS[2:], "")


def test_commits_that_cant_be_read_are_a_doubt(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = data_dir / "__consumer_offsets-0"
    commits.mkdir(exist_ok=True)
    refuse(monkeypatch, commits)
    done = call_plog("trace", f"{BROKEN}@3", "--data-dir", str(data_dir))
    assert f"a commit may be missing: could not read {commits}: permission denied" in done.stdout.decode()


def test_a_trace_says_that_the_settings_of_its_topic_cant_be_read(data_dir: Path) -> None:
    metadata = data_dir / "__cluster_metadata-0"

    def fate() -> str:
        traced = json.loads(call_plog("trace", f"{OTHER}@3", "--data-dir", str(data_dir), "--output", "json").stdout)
        (said,) = (line for line in traced[0]["fate"] if "Kafka's defaults" in line)
        return str(said)

    shutil.rmtree(metadata, ignore_errors=True)
    assert fate() == "the directory has no metadata log: what follows assumes Kafka's defaults"
    os.mkfifo(metadata)
    assert fate() == f"the metadata log can't be read: {metadata} is no folder: what follows assumes Kafka's defaults"
    metadata.unlink()
    log = metadata / "00000000000000000000.log"
    log.mkdir(parents=True)
    assert fate().startswith("the metadata log can't be read: ")
    log.rmdir()
    log.write_bytes(b"no batch" * 20)
    assert f"in {log} at position 0: what follows assumes" in fate()


def test_paths_that_are_not_there_stop_no_others(data_dir: Path, tmp_path: Path) -> None:
    (data_dir / f"{OTHER}-0" / MIDDLE.replace(".log", ".index")).write_bytes(b"\xff" * 8)
    for command in (["verify", "--output", "ndjson"], ["dump-segment", "--format", "ndjson"], ["stats"], ["recover"]):
        name, *options = command
        alone = call_plog(name, str(data_dir), *options).stdout
        done = call_plog(name, str(tmp_path / "nowhere"), str(data_dir), *options)
        assert alone
        assert done.stdout == alone
        assert done.returncode == 3
        assert str(tmp_path / "nowhere") in done.stderr.decode()


# --- links


def test_a_link_to_a_partitions_folder_is_followed_by_every_command(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "other disk" / "moved"
    shutil.copytree(data_dir, tmp_path / "straight")
    target.parent.mkdir()
    (data_dir / f"{OTHER}-0").rename(target)
    (data_dir / f"{OTHER}-0").symlink_to(target)
    for root in (data_dir, tmp_path / "straight"):
        with (root / f"{OTHER}-0" / MIDDLE).open("r+b") as file:
            file.seek(3000)
            file.write(b"#!?")
    for arguments in COMMANDS:
        told = []
        for root in (data_dir, tmp_path / "straight"):
            done = call_plog(*(a.format(root=root).replace(BROKEN, OTHER) for a in arguments))
            told.append((done.returncode, done.stdout.decode().replace(str(root), "")))
        assert told[0][0] == told[1][0], arguments
        if arguments[0] != "compact":  # sizes of a progress
            assert told[0][1] == told[1][1], arguments
    assert len(list(verify(data_dir / f"{OTHER}-0"))) == len(list(verify(data_dir))) == 1
    done = call_plog("recover", str(data_dir), "--apply")
    assert done.returncode == 0
    said = done.stderr.decode()
    assert said.index(f"{data_dir}/{OTHER}-0 is a link: what is mended is {target}") < said.index("clean; ")
    assert (data_dir / f"{OTHER}-0").is_symlink()
    assert list(verify(data_dir)) == []
    assert call_plog("recover", str(data_dir), "--undo").returncode == 0
    assert len(list(verify(data_dir))) == 1


def test_two_links_to_one_folder_are_mended_once(data_dir: Path) -> None:
    (data_dir / "twice-0").symlink_to(f"{OTHER}-0")
    with (data_dir / f"{OTHER}-0" / MIDDLE).open("r+b") as file:
        file.seek(3000)
        file.write(b"#!?")
    plans = list(plan_recovery(data_dir, RecoveryOptions()))
    assert len([plan for plan in plans if plan.is_needed]) == 1
    call_plog("recover", str(data_dir), "--apply")
    assert {finding.code for finding in verify(data_dir)} == {Code.TOPIC_ID_MISMATCH}, "as the links have one id"


@for_each("leads_to", ["endless-0", "/not/mounted"])
def test_a_link_that_leads_nowhere_is_a_finding(data_dir: Path, leads_to: str) -> None:
    (data_dir / "endless-0").unlink(missing_ok=True)
    (data_dir / "endless-0").symlink_to(leads_to)
    (finding,) = verify(data_dir)
    assert (finding.path, finding.code) == (str(data_dir / "endless-0"), Code.UNREADABLE)
    for arguments in COMMANDS:
        done = call_plog(*(a.format(root=data_dir) for a in arguments))
        assert done.returncode in (0, 1, 3), (arguments, done.stderr.decode())
    assert consumed(data_dir, OTHER) == (0, OTHER_OFFSETS, "")
    assert consumed(data_dir, "endless")[0] == 1


def test_links_in_a_circle_end(data_dir: Path) -> None:
    for name in ("up", "back"):
        (data_dir / f"{OTHER}-0" / name).symlink_to(data_dir)
    for arguments in COMMANDS:
        done = call_plog(*(a.format(root=data_dir) for a in arguments))
        assert done.returncode in (0, 1), (arguments, done.stderr.decode())


# --- bad sectors in a log


def test_a_bad_sector_costs_its_batches_and_no_others(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = data_dir / f"{OTHER}-0" / MIDDLE
    content = log.read_bytes()
    break_disk(monkeypatch, {log: [5000]}, 512)
    (finding,) = verify(data_dir)
    assert finding.code is Code.UNREADABLE
    assert finding.message == "bytes 4608 to 5119 could not be read: input/output error (errno 5)"
    assert finding.position <= 4608
    assert finding.end_position >= 5120
    lost = set(range(finding.offset, finding.last_offset + 1))
    assert finding.records == len(lost) < 20

    code, offsets, said = consumed(data_dir, OTHER)
    assert (code, offsets) == (1, OTHER_OFFSETS[: finding.offset])
    assert "bytes 4608 to 5119 could not be read: input/output error (errno 5)" in said
    assert str(log) in said
    code, offsets, said = consumed(data_dir, OTHER, "--no-exit-on-error")
    assert offsets == [str(offset) for offset in range(330) if offset not in lost]
    assert "could not be read" in said

    done = call_plog("recover", str(data_dir), "--apply")
    assert f"records lost: {len(lost)}" in done.stdout.decode()
    monkeypatch.undo()  # the new file lies elsewhere on the disk
    assert list(verify(data_dir)) == []
    kept = [offset for offset in range(330) if offset not in lost]
    assert consumed(data_dir, OTHER)[1] == [str(offset) for offset in kept]
    assert log.read_bytes() == content[: finding.position] + content[finding.end_position :]
    assert log.with_name(log.name + ".before-recovery-1").read_bytes() == content


def test_a_bad_sector_in_what_is_made_from_the_log(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = data_dir / f"{BROKEN}-0"
    beside = [path for path in partition.iterdir() if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot")]
    before = {path: path.read_bytes() for path in beside if path.stat().st_size}
    break_disk(monkeypatch, {path: [0] for path in before})
    assert {(f.path, f.code) for f in verify(data_dir)} == {(str(path), Code.UNREADABLE) for path in before}
    (plan,) = plan_recovery(data_dir, RecoveryOptions())
    assert {step.action for step in plan.steps} == {Action.REBUILD}
    call_plog("recover", str(data_dir), "--apply")
    monkeypatch.undo()
    assert list(verify(data_dir)) == []
    for path, content in before.items():
        if path.suffix == ".txnindex":
            assert path.read_bytes() == content


# --- nothing found is lost


def test_what_was_found_is_printed_whatever_comes_after(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.inspector.check import verify as module

    found = Finding(module.Severity.ERROR, Code.GARBAGE, "here", "there")

    def failing(*_: object) -> Iterator[Finding]:
        yield found
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(module, "verify", failing)
    for output in ("json", "ndjson", "csv", "table"):
        done = call_plog("verify", str(data_dir), "--output", output)
        assert b"garbage" in done.stdout
        assert done.returncode != 0


# --- large files


LARGE = {
    "00000000000000000000.index": 256 * MIB,
    "00000000000000000000.timeindex": 252 * MIB,
    "00000000000000000000.txnindex": 34 * 7 * MIB,
    "00000000000000000000.snapshot": 256 * MIB,
    "leader-epoch-checkpoint": 256 * MIB,
    "partition.metadata": 256 * MIB,
    "damaged-ranges": 256 * MIB,
    "recovery-journal": 256 * MIB,
    "../log-start-offset-checkpoint": 256 * MIB,
    "../recovery-point-offset-checkpoint": 256 * MIB,
    "../meta.properties": 256 * MIB,
}
MOST_BYTES = 256 * MIB
_MEASURE = """
import os, sys
from cli.main import run
report = os.dup(2)
null = os.open(os.devnull, os.O_WRONLY)
os.dup2(null, 1), os.dup2(null, 2)
code = run(sys.argv[1:])
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
os.write(report, f"{code} {peak * 1024}".encode())
"""
"""The kernel's mark for this process's memory alone: `ru_maxrss` begins with that of the process that started it."""


def measured(commands: list[str]) -> Iterator[tuple[int, int, str]]:
    """Exit code and largest memory in bytes of each command, in a process of its own."""
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, *command.split()], capture_output=True, text=True, check=True
        )
        code, peak = map(int, done.stderr.split())
        yield code, peak, command


@pytest.mark.longer
def test_a_log_of_large_claims_makes_no_command_large(tmp_path: Path) -> None:
    """Headers of batches just below the largest, with nothing in them."""
    log = tmp_path / "data" / "t-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    with log.open("wb") as file:
        file.truncate(256 * MIB)
        for position in (0, 90 * MIB + 12):
            file.seek(position)
            file.write(struct.pack(">qiib", 0, 90 * MIB, 0, 2))
    commands = ["verify {root}", "recover {root}", "dump-segment {root}", "consume t --data-dir {root}", "gaps {root}"]
    for _, peak, arguments in measured([command.format(root=tmp_path / "data") for command in commands]):
        assert peak < MOST_BYTES, (arguments, peak // MIB)


@pytest.mark.longer
@pytest.mark.parametrize("content", ["zeros", "an entry at the end"])
def test_no_file_makes_a_command_large(data_dir: Path, content: str) -> None:
    """Sparse files, which cost no disk: all of them at once. Zeros alone may be any number, as no hole is read."""
    partition = data_dir / f"{BROKEN}-0"
    if content == "zeros":
        os.truncate(partition / "00000000000000000145.log", 400 * 256 * MIB)
    for name, size in LARGE.items():
        path = partition / name
        path.unlink(missing_ok=True)
        with path.open("wb") as file:
            file.truncate(size * 400 if content == "zeros" else size)
            if content != "zeros":
                file.seek(size - 8)
                file.write(b"\x00\x00\x01\x00\x00\x00\x10\x00")
    chosen = COMMANDS if content == "zeros" else COMMANDS[:4]
    commands = [
        " ".join(argument.format(root=data_dir) for argument in arguments)
        for arguments in chosen
        if "--hex" not in arguments
    ]
    for code, peak, arguments in measured(commands):
        assert code in (0, 1, 3), arguments
        assert peak < MOST_BYTES, (arguments, peak // MIB)
    assert json.loads(call_plog("verify", str(data_dir), "--output", "json").stdout)


# --- paths as the user gave them


def test_messages_name_no_temporary_path(
    data_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine works in a shadow, or in a stage; what it says is of the user's folder."""
    log = data_dir / f"{OTHER}-0" / "00000000000000000232.log"
    with log.open("r+b") as file:
        file.seek(3000)
        file.write(b"#!?")
    (data_dir / ".kafka_cleanshutdown").unlink()
    (data_dir / "recovery-point-offset-checkpoint").write_text("no checkpoint")
    monkeypatch.setenv("TMPDIR", str(data_dir.parent))
    tempfile.tempdir = None
    said = ""
    for arguments in (
        ["transaction", "list", "--data-dir", "{root}"],
        ["compact", "{root}", "--set", "cleanup.policy=compact", "--roll", "--output", "json"],
        ["recover", "{root}", "--apply"],
    ):
        caplog.clear()
        done = call_plog(*(a.format(root=data_dir) for a in arguments))
        said = caplog.text + (done.stdout + done.stderr).decode()
        if arguments[0] != "recover":
            assert f"{log}" in said, arguments
        for temporary in ("plog-read-only-", "plog-compact-", "recovering"):
            assert temporary not in said, arguments


def test_a_server_says_why_a_log_is_offline(data_dir: Path) -> None:
    """Nothing is appended where offsets may be that can't be read; other logs are served."""
    broken = data_dir / f"{OTHER}-0" / "00000000000000000400.log"
    broken.mkdir()
    broker = SteeredNode(data_dir, BrokerConfig())
    try:
        assert [str(partition) for partition in broker.services.log_manager.offline] == [f"{OTHER}-0"]
        (reason,) = broker.services.log_manager.offline.values()
        assert str(reason) == f"could not read {broken}: is a directory (errno 21)"
        assert [str(partition) for partition in broker.services.log_manager.logs] == [f"{BROKEN}-0"]
    finally:
        broker.close()


def test_a_server_that_only_reads_serves_the_rest(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = data_dir / f"{OTHER}-0" / "00000000000000000400.log"
    os.mkfifo(broken)
    broker = SteeredNode(data_dir, BrokerConfig(), is_read_only=True)
    try:
        assert {str(partition): log.log_end_offset for partition, log in broker.services.log_manager.logs.items()}[
            f"{OTHER}-0"
        ] == 330
        assert f"could not read {broken}: is a named pipe, no regular file (errno 22); it is passed over" in caplog.text
    finally:
        broker.close()


def test_what_the_system_refuses_where_nobody_reckoned_with_it_is_no_bug_of_plogs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A share that goes away may refuse anything, at any time."""

    def refuse_all(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), "/data/t-0")

    monkeypatch.setattr("cli.main.app", refuse_all)
    done = call_plog("verify", "/data")
    assert done.returncode == 3
    assert (
        done.stderr.decode() == f"error: could not read or write /data/t-0: stale file handle (errno {errno.ESTALE})\n"
    )


_FEW = """
import json, resource, sys
from tests.support.server import call_plog
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
for command in json.load(sys.stdin):
    done = call_plog(*command)
    print(json.dumps([done.returncode, done.stdout.decode(), done.stderr.decode()]))
"""


@pytest.mark.longer
@pytest.mark.parametrize("is_damaged", [False, True])
def test_more_segments_than_descriptors(tmp_path: Path, *, is_damaged: bool) -> None:
    """Each command says what it says in a process that may open all of them."""
    log = open_log(tmp_path / "t-0", segment_bytes=80)
    for number in range(100):
        append(log, make_batch(b"%d" % number))
    log.close()
    if is_damaged:
        os.truncate(tmp_path / "t-0" / f"{42:020d}.log", 60)
    commands = [[name, str(tmp_path)] for name in ("verify", "gaps", "stats", "doctor", "recover", "dump-segment")]
    topics = (["consume", "t", "--no-exit-on-error"], ["topic", "describe", "t"], ["trace", "t@7"])
    commands += [[*words, "--data-dir", str(tmp_path)] for words in topics]
    process = [sys.executable, "-c", _FEW]
    done = subprocess.run(process, input=json.dumps(commands), capture_output=True, text=True, check=True)
    few = [json.loads(line) for line in done.stdout.splitlines()]
    many = [call_plog(*command) for command in commands]
    assert few == [[one.returncode, one.stdout.decode(), one.stderr.decode()] for one in many]
    assert {one.returncode for one in many} == ({0, 1} if is_damaged else {0})
