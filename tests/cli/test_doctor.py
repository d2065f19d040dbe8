"""`plog doctor`: what a directory is, as people ask it about theirs, and the three things that are worth doing."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import core.view.figures.diagnosis
from core.files.directory_lock import LockHolder
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.full_screen import FullScreen
from tests.support.golden import GOLDEN, SAMPLE_DATA, directories
from tests.support.pseudo_terminal import call_at_terminal
from tests.support.server import PLOG, Server, call_plog, read_json

DAMAGE = GOLDEN.parent / "damage"
ROOT = SAMPLE_DATA.parent
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
"""The id in the meta.properties of the golden files."""


def diagnosis(path: Path | str, *options: str, code: int = 0) -> dict[str, Any]:
    ((found),) = read_json(code, "doctor", str(path), *options)
    assert isinstance(found, dict)
    return found


def commands(found: dict[str, Any]) -> list[str]:
    """What it advises, without the path."""
    return [one["command"].replace(found["path"], "DIR") for one in found["advice"]]


def of_kafka(directory: Path, *topics: str, root: str = "_root") -> Path:
    """A data directory of these partitions as Kafka left it, without the metadata log."""
    shutil.copytree(GOLDEN / root, directory)
    for topic in topics:
        shutil.copytree(GOLDEN / topic, directory / (topic if topic.startswith("__") else f"{topic}-0"))
    return directory


def state_of(path: Path) -> dict[str, tuple[int, int]]:
    """Sizes and times of all files; of nothing that is there may anything change."""
    return {str(one): (one.lstat().st_size, one.lstat().st_mtime_ns) for one in sorted([path, *path.rglob("*")])}


# --- the screen


def test_it_is_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text, code = call_at_terminal("doctor", "sample-data/damaged")
    assert code == 1
    assert re.sub(r".*\x1b\[K", "", text) == (
        """\
path:   sample-data/damaged: a folder of 3 partitions, no broker's: it has no
        meta.properties
holds:  3 topics, 3 partitions, 13.0 KB of log in 3 segments: c_bitflip_middle
        4.4 KB, c_bitflip_length 4.4 KB, c_torn_tail 4.2 KB
verify: 3 findings: bad-length, crc-mismatch, torn-tail; 8 records at stake
gaps:   112 records, 8 offsets without one, 8 of them lost or unexplained
stats:  41 batches, 2023-11-15T00:27:39.292Z to 2023-11-15T00:32:00.053Z

1. keep an account of what is lost, and the proof, before anything changes:
   plog gaps sample-data/damaged --lost --certificate lost.json
2. see what a repair would keep; it changes nothing without --apply:
   plog recover sample-data/damaged --fix-bits
3. save what can be read of c_bitflip_length, which has lost most:
   plog consume c_bitflip_length --data-dir sample-data/damaged \\
     --no-exit-on-error --format envelope --out saved.ndjson
"""
    )


def test_all_that_there_may_be_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    of_kafka(Path("d"), "__cluster_metadata-0", "c_bitflip_middle", "txn_open", "multisegment", "nulls")
    of_kafka(Path("e"))
    Path("e/meta.properties").write_text(Path("e/meta.properties").read_text().replace("itIKB-l_", "AAAAAAAA"))
    for name in ("x-0.1.2-stray", "x-0.1.2-delete", "x-0.1.2-future", "lost+found"):
        (Path("d") / name).mkdir()
    for name in ("1.log.deleted", "1.log.cleaned", "1.log.swap", "1.log.cut-at-4", "1.log.before-recovery-1"):
        (Path("d/multisegment-0") / name).touch()
    monkeypatch.setattr(core.view.figures.diagnosis, "MOST_BYTES", 20_000)
    text, code = call_at_terminal("doctor", "d")
    lines = re.sub(r".*\x1b\[K", "", text).splitlines()
    assert (code, len(lines) <= 24, max(map(len, lines)) <= 80) == (0, True, True), text
    assert {"path", "written by", "served by", "holds", "beside", "read", "verify", "gaps", "stats"} <= {
        line.partition(":")[0] for line in lines
    }


def test_no_value_is_printed(tmp_path: Path) -> None:
    ok("produce", "t", "--key-separator", ":", "--data-dir", str(tmp_path), stdin=b"marked:marked\n")
    for output in ("table", "json", "ndjson", "csv"):
        assert b"marked" not in ok("doctor", str(tmp_path), "--output", output)


# --- what people ask


def test_a_sound_partition() -> None:
    found = diagnosis(SAMPLE_DATA / "partition")
    assert (found["kind"], found["topic_bytes"], found["cluster_id"]) == (
        "folder of partitions", {"txn_multisegment": 25080}, None,
    )  # fmt: skip
    counts = ("records", "hidden_records", "offsets_without_record", "lost", "segments", "findings")
    assert [found[name] for name in counts] == [212, 107, 14, 0, 2, {}]
    assert commands(found) == ["plog inspect DIR", "plog verify --deep DIR", "plog stats DIR --html report.html"]


def test_readers_who_wait_for_a_transaction() -> None:
    """ "Consumer stuck at the last stable offset": nothing is damaged, and nothing comes."""
    found = diagnosis(SAMPLE_DATA / "open-transaction")
    (waiting,) = found["open_transactions"]
    assert (waiting["partition"], waiting["offset"], found["findings"]) == ("txn_open-0", 5, {})
    assert commands(found)[0] == "plog transaction find-hanging --all --data-dir DIR"
    assert b"wait at txn_open-0, offset 5, since 2023-11-15" in ok("doctor", str(SAMPLE_DATA / "open-transaction"))


def test_whose_directory_it_is(tmp_path: Path) -> None:
    """InconsistentClusterIdException, "which id is the one on this volume?" And: which Kafka can still start on it?"""
    directory = of_kafka(tmp_path / "d", "__cluster_metadata-0", "nulls", "txn_committed")
    found = diagnosis(directory)
    assert (found["cluster_id"], found["node_id"], found["metadata_version"]) == (CLUSTER, 1, 30)
    assert (found["written_by"], found["security"], found["served_by"]) == ("Kafka 4.3 with KRaft", "", None)
    assert "big_value-0" in found["absent_partitions"], "the metadata name it, and its folder was not copied"
    said = ok("doctor", str(directory)).decode()
    assert f"the data directory of node 1, cluster {CLUSTER}" in said
    assert "metadata.version 30 (Kafka before 4.3 does not start on it); no security in its metadata" in said
    assert commands(found) == [
        "plog topic list --data-dir DIR",
        "plog serve --read-only --data-dir DIR --listen 127.0.0.1:9099",
        "plog verify --deep DIR",
    ]


def test_a_broker_of_a_cluster_with_zookeeper(tmp_path: Path) -> None:
    found = diagnosis(of_kafka(tmp_path / "d", "v1_none_java", root="_root3"))
    assert (found["written_by"], found["security"]) == ("Kafka with ZooKeeper, or plog in such a cluster", None)
    assert (found["cluster_id"], found["was_stopped_cleanly"]) == ("2ADgtbYHTT-YPzerznhQvw", True)


def test_a_directory_that_is_served(shared_server: Server) -> None:
    ok("topic", "create", "t", "--bootstrap-server", shared_server.address)
    (found,) = json.loads(call_plog("doctor", str(shared_server.data_dir), "--output", "json").stdout)
    assert shared_server.process is not None
    assert (found["written_by"], found["server"]) == ("plog", shared_server.address)
    assert found["served_by"] == f"process {shared_server.process.pid}, listening on {shared_server.address}"
    where = f"--bootstrap-server {shared_server.address}"
    assert {f"plog topic list {where}", f"plog group list {where}"} & set(commands(found))


def test_a_lock_that_nobody_holds(tmp_path: Path) -> None:
    """ "Failed to acquire lock on file .lock": the file stays behind, the lock does not."""
    directory = of_kafka(tmp_path / "d", "nulls")
    (directory / ".lock").write_text('{"pid": 1, "address": "127.0.0.1:1"}')
    found = diagnosis(directory)
    assert (found["served_by"], found["server"], found["was_stopped_cleanly"]) == (None, None, True)


def test_a_directory_that_kafka_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka writes nothing into the file that it locks; its address stands in the metadata."""
    directory = of_kafka(tmp_path / "d", "__cluster_metadata-0", "nulls", "txn_open")
    monkeypatch.setattr(core.view.figures.diagnosis, "find_lock_holder", lambda _: LockHolder(0, ""))
    found = diagnosis(directory)
    assert (found["server"], found["was_stopped_cleanly"]) == ("127.0.0.1:19292", None)
    assert commands(found) == [
        "plog transaction find-hanging --all --bootstrap-server 127.0.0.1:19292",
        "plog topic list --bootstrap-server 127.0.0.1:19292",
        "plog group list --bootstrap-server 127.0.0.1:19292",
    ]
    assert b"Kafka, it seems (its lock is held), at 127.0.0.1:19292" in ok("doctor", str(directory))


def test_a_broker_that_was_killed(tmp_path: Path) -> None:
    directory = of_kafka(tmp_path / "d", "c_torn_tail.corrupt")
    (directory / "c_torn_tail.corrupt-0").rename(directory / "c_torn_tail-0")
    (directory / ".kafka_cleanshutdown").unlink()
    found = diagnosis(directory, code=1)
    assert (found["was_stopped_cleanly"], found["findings"], found["lost"]) == (False, {"torn-tail": 1}, 2)
    assert commands(found)[0] == "plog gaps DIR --lost --certificate lost.json"
    assert commands(found)[2].startswith("plog consume c_torn_tail --data-dir DIR --no-exit-on-error ")


def test_one_of_several_log_dirs(tmp_path: Path) -> None:
    """The metadata log is in one of them, and says what the others have."""
    first = of_kafka(tmp_path / "kafka-log0", "__cluster_metadata-0", "nulls")
    second = of_kafka(tmp_path / "kafka-log1", "binary")
    id_of_second = "AAAAAAAAAAAAAAAAAAAAgA"
    properties = re.sub("directory.id=.*", f"directory.id={id_of_second}", (first / "meta.properties").read_text())
    (second / "meta.properties").write_text(properties)
    found = diagnosis(second)
    assert (found["elsewhere"], found["written_by"]) == ([str(first)], "Kafka 4.3 with KRaft")
    assert "nulls-0" in found["partitions_elsewhere"]
    assert commands(found)[0] == f"plog doctor {first}"
    first.rename(tmp_path.parent / f"{tmp_path.name}-away")
    found = diagnosis(second)
    assert (found["elsewhere"], found["partitions_elsewhere"]) == ([], [])
    assert "whose metadata log is not here: in another of its log.dirs, or not copied" in found["written_by"]


def test_a_volume_of_strimzis(tmp_path: Path) -> None:
    """ "Is there any way I can view topic data in the PV?" The data directory is one or two levels below."""
    of_kafka(tmp_path / "pv" / "kafka-log0", "nulls")
    (tmp_path / "pv" / "lost+found").mkdir()
    for where in (tmp_path / "pv", tmp_path):
        done = call_plog("doctor", str(where))
        assert (done.returncode, done.stdout) == (3, b"")
        assert f"hint: did you mean {tmp_path / 'pv' / 'kafka-log0'}?\n" in done.stderr.decode()


def test_what_kafka_does_not_start_beside(tmp_path: Path) -> None:
    """ "lost+found is not in the form of topic-partition": it is named, and is no damage."""
    directory = of_kafka(tmp_path / "d", "nulls")
    (directory / "lost+found").mkdir()
    (directory / "data").mkdir()
    shutil.copytree(GOLDEN / "binary", directory / "binary")
    found = diagnosis(directory, code=1)
    assert (found["unchecked"], found["beside"]) == (["data", "lost+found"], {})
    assert found["findings"] == {"folder-misnamed": 1}
    assert commands(found)[:2] == ["plog verify DIR", "plog doctor DIR/binary"]


def test_what_fills_the_disk(tmp_path: Path) -> None:
    """The largest topic comes first, and what is no partition any more is counted."""
    directory = of_kafka(tmp_path / "d", "nulls", "multisegment", "binary")
    name = f"gone-0.{'0' * 32}-delete"
    shutil.copytree(GOLDEN / "binary", directory / name)
    for old in ("log", "index"):
        (directory / "nulls-0" / f"00000000000000000000.{old}.deleted").write_bytes(b"x")
    assert b"1 folder *-delete" in ok("doctor", str(directory))
    assert b"2 files *.deleted" in ok("doctor", str(directory))
    found = diagnosis(directory)
    assert next(iter(found["topic_bytes"])) == "multisegment"
    assert sorted(what.partition(" (")[0] for what in found["beside"]) == ["file *.deleted", "folder *-delete"]


def test_strays(tmp_path: Path) -> None:
    """What Kafka set aside when it did not find the topic in its metadata."""
    directory = of_kafka(tmp_path / "d", "nulls")
    stray = directory / f"binary-0.{'0' * 32}-stray"
    shutil.copytree(GOLDEN / "binary", stray)
    found = diagnosis(directory)
    assert [what.partition(" (")[0] for what in found["beside"]] == ["folder *-stray"]
    assert commands(found)[0] == f"plog doctor DIR/{stray.name}"
    assert diagnosis(stray)["records"] == len(json.loads((GOLDEN / "binary.json").read_text())["read_uncommitted"])


def test_a_volume_that_was_formatted_again(tmp_path: Path) -> None:
    """The new metadata know none of the topics: Kafka sets their folders aside, and then they are strays."""
    directory = tmp_path / "d"
    ok("topic", "create", "new", "--data-dir", str(directory))
    shutil.copytree(GOLDEN / "nulls", directory / "nulls-0")
    found = diagnosis(directory)
    assert found["unknown_partitions"] == ["nulls-0"]
    assert commands(found)[0] == "plog doctor DIR/nulls-0"


def test_a_file(tmp_path: Path) -> None:
    log = SAMPLE_DATA / "damaged" / "c_torn_tail-0" / "00000000000000000000.log"
    found = diagnosis(log, code=1)
    assert (found["kind"], found["findings"], found["records"], found["batches"]) == (
        "file",
        {"torn-tail": 1},
        None,
        13,
    )
    assert commands(found) == ["plog verify DIR", "plog dump-segment DIR", f"plog doctor {log.parent}"]
    assert diagnosis(log.with_suffix(".index"))["batches"] == 0


def test_an_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "kafka.tar.gz", "w:gz") as archive:
        archive.add(GOLDEN / "nulls", "nulls-0")
    done = call_plog("doctor", str(tmp_path / "kafka.tar.gz"))
    assert done.returncode == 3
    hint = done.stderr.decode().partition("hint: it is an archive: ")[2].strip()
    assert os.system(f"cd {tmp_path} && {hint}") == 0
    assert diagnosis(tmp_path / "kafka")["topic_bytes"].keys() == {"nulls"}


@for_each(
    "make, code, said",
    [
        (lambda path: path.mkdir(), 3, "holds no file of Kafka's or plog's"),
        (lambda path: None, 3, "no such file or directory"),
        (lambda path: path.write_text("x"), 3, "is no file that Kafka or plog writes"),
        (lambda path: (path.mkdir(), (path / "cluster.properties").touch()), 2, "is the directory of a whole cluster"),
    ],
    ids=lambda case: case[2],
)
def test_what_it_cant_look_at(make: Any, code: int, said: str, tmp_path: Path) -> None:
    make(tmp_path / "x")
    done = call_plog("doctor", str(tmp_path / "x"))
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr.decode()


def test_a_folder_that_cant_be_read_hides_no_other(tmp_path: Path) -> None:
    directory = of_kafka(tmp_path / "d", "nulls")
    (directory / "binary-0").symlink_to(tmp_path / "nowhere")
    found = diagnosis(directory, code=1)
    assert (found["findings"], found["partitions"]) == ({"unreadable": 1}, 2)
    assert commands(found)[0] == "plog verify DIR"
    assert "recover" not in str(commands(found))


def test_a_large_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the newest segments alone, and says so; --whole reads all, --quick no more of a small one either."""
    directory = of_kafka(tmp_path / "d", "multisegment", "c_bitflip_middle.corrupt")
    (directory / "c_bitflip_middle.corrupt-0").rename(directory / "c_bitflip_middle-0")
    first = directory / "multisegment-0" / "00000000000000000000.log"
    damaged = bytearray(first.read_bytes())
    damaged[100] ^= 1
    first.write_bytes(damaged)
    newest = sorted(first.parent.glob("*.log"))[-1]
    monkeypatch.setattr(core.view.figures.diagnosis, "MOST_BYTES", 30_000)
    found = diagnosis(directory, code=1)
    seen = newest.stat().st_size + (directory / "c_bitflip_middle-0" / first.name).stat().st_size
    assert (found["seen_bytes"], found["findings"]) == (seen, {"crc-mismatch": 1})
    assert found == {**diagnosis(directory, "--quick", code=1), "seconds": found["seconds"]}
    assert "plog doctor --whole DIR" not in commands(found), "three other things come first"
    assert diagnosis(directory, "--whole", code=1)["findings"] == {"crc-mismatch": 2}
    said = call_plog("doctor", str(directory)).stdout.decode()
    assert re.search(r"only the newest segments, .* KB of .* KB; all of it takes less than a minute \(--whole\)", said)
    rows = read_json(0, "gaps", str(first.parent), "--from", str(int(newest.stem)), "--output", "json")
    assert rows == []
    monkeypatch.setattr(core.view.figures.diagnosis, "MOST_BYTES", 1)
    assert 0 < diagnosis(directory)["seen_bytes"] < seen, "the one that was written last, whatever its size"
    assert commands(diagnosis(directory))[0] == "plog doctor --whole DIR"


# --- all doors say the same


PATHS = [
    *sorted(SAMPLE_DATA.glob("*/")),
    *sorted(SAMPLE_DATA.glob("*/*-*/")),
    *sorted(path for path in DAMAGE.iterdir() if path.is_dir()),
    *directories(),
]


def places() -> Iterator[Path]:
    yield from PATHS
    yield SAMPLE_DATA / "damaged" / "c_torn_tail-0" / "00000000000000000000.log"


@pytest.mark.longer
@for_each("path", places(), ids=lambda path: path.name)
def test_it_says_what_the_others_say_and_what_it_advises_works(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = state_of(path)
    verified = call_plog("verify", str(path), "--output", "json")
    found = diagnosis(path, code=agree(path, json.loads(verified.stdout), verified.returncode))
    for one in found["advice"]:
        ensure_it_runs(one["command"])
    text, _ = call_at_terminal("doctor", str(path))
    assert len(text.splitlines()) <= 26, "long names take two lines more"
    assert state_of(path) == before


def agree(path: Path, findings: list[dict[str, Any]], code: int) -> int:
    """Compares with `verify`, `gaps` and `stats`; the exit code that follows."""
    found = json.loads(call_plog("doctor", str(path), "--output", "json").stdout)[0]
    assert found["findings"] == Counter(one["code"] for one in findings)
    assert found["records_at_stake"] == sum(one["records"] or 0 for one in findings)
    measured = call_plog("stats", str(path), "--output", "json")
    summaries = [one["summary"] for one in json.loads(measured.stdout)] if measured.stdout else []
    for name in ("batches", "segments", "future_batches"):
        assert found[name] == sum(one[name] for one in summaries), name
    assert found["last_timestamp"] == max((one["last_timestamp"] for one in summaries), default=-1)
    if path.is_file():
        return code
    for name in ("records", "hidden_records"):
        assert found[name] == sum(one[name] for one in summaries), name
    assert found["offsets_without_record"] == sum(one["offsets_without_record"] for one in summaries)
    accounted = call_plog("gaps", str(path), "--certificate", "all.json", "--output", "json")
    assert b"error: " in accounted.stderr or Path("all.json").exists()
    rows = json.loads(accounted.stdout) if accounted.stdout else []
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons[row["reason"]] += row["count"]
    assert found["gap_reasons"] == reasons
    told = re.search(rb"(\d+) of them lost or unexplained", accounted.stderr)
    assert found["lost"] == (int(told[1]) if told else 0)
    return max(code, accounted.returncode if accounted.returncode != 3 else 0)


def ensure_it_runs(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "plog"
    if words[0] not in ("inspect", "serve"):
        assert call_plog(*words).returncode in (0, 1), command


@pytest.mark.longer
def test_what_it_advises_that_does_not_end_by_itself(tmp_path: Path) -> None:
    directory = of_kafka(tmp_path / "d", "nulls")
    (line,) = [one for one in commands(diagnosis(directory)) if one.startswith("plog serve ")]
    words = shlex.split(line.replace("DIR", str(directory)).replace("9099", "0"))
    with Server(directory, *words[words.index("--listen") :], *words[2:3]) as server:
        assert b"nulls" in ok("topic", "list", "--bootstrap-server", server.address)
    (line,) = [one for one in commands(diagnosis(directory / "nulls-0")) if one.startswith("plog inspect ")]
    screen = FullScreen([PLOG, *shlex.split(line.replace("DIR", str(directory / "nulls-0")))[1:]])
    screen.read_until(lambda output: b"Help" in output)
    screen.write(b"q")
    assert screen.end() == 0
