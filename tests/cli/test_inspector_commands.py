"""The inspector's commands as a user types them: output, formats, exit codes."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.logs import fingerprint
from tests.support.server import Server, call_plog, read_json

ROOT = Path(__file__).parents[2]
DAMAGED = ROOT / "sample-data" / "damaged"
SOUND = ROOT / "sample-data" / "partition"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DAMAGED, tmp_path / "damaged"))


def test_verify_says_all_of_a_finding() -> None:
    found = read_json(1, "verify", str(DAMAGED / "c_bitflip_middle-0"))
    assert [list(row) for row in found] == [
        ["severity", "code", "path", "position", "end_position", "offset", "last_offset", "records", "message"]
    ]
    assert (found[0]["offset"], found[0]["last_offset"], found[0]["records"]) == (21, 22, 2)
    text = call_plog("verify", str(DAMAGED / "c_bitflip_middle-0")).stdout.decode()
    assert "offset 21 to 22: crc-mismatch: " in text
    assert "bit 4 of the byte at position 2707 is flipped" in text
    assert "(2 records at stake)" in text


def test_verify_deep_and_paranoid_of_what_is_sound() -> None:
    assert ok("verify", str(SOUND), "--deep", "--paranoid") == b""


def test_recover_says_where_the_checkpoints_of_before_are(damaged: Path) -> None:
    (damaged / "meta.properties").write_text(
        "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    (damaged / "replication-offset-checkpoint").write_text("0\n1\nc_torn_tail 0 40\n")
    told = call_plog("recover", str(damaged), "--fix-bits", "--apply").stderr.decode()
    assert (damaged / "replication-offset-checkpoint.before-recovery-1").read_text() == "0\n1\nc_torn_tail 0 40\n"
    assert f" and 2 more, and in {damaged}, *.before-recovery-*; plog recover {damaged} --undo takes it back" in told


def test_recover_from_plan_to_undo(damaged: Path) -> None:
    before = fingerprint(damaged)
    plan = read_json(1, "recover", str(damaged))
    assert {row["action"] for row in plan} == {"cut out", "rebuild"}
    assert sum(row["records_lost"] for row in plan) == 8
    assert fingerprint(damaged) == before
    done = call_plog("recover", str(damaged), "--fix-bits", "--apply")
    assert done.returncode == 0, done.stderr
    assert b"clean; 2 records lost; the files of before are in " in done.stderr
    for name in ("bitflip_middle", "bitflip_length"):
        log = "00000000000000000000.log"
        assert (damaged / f"c_{name}-0" / log).read_bytes() == (GOLDEN / f"c_{name}" / log).read_bytes()
    assert call_plog("verify", str(damaged)).returncode == 0
    assert call_plog("recover", str(damaged)).returncode == 0
    assert b"11 files put back" in call_plog("recover", str(damaged), "--undo").stderr
    assert {k: v[1] for k, v in fingerprint(damaged).items()} == {k: v[1] for k, v in before.items()}
    assert b"nothing to take back" in call_plog("recover", str(damaged), "--undo").stderr


def test_recover_prints_its_plan_and_changes_nothing(damaged: Path) -> None:
    folder = damaged / "c_bitflip_middle-0"
    done = call_plog("recover", str(folder))
    assert done.returncode == 1
    first, *_ = done.stdout.decode().split("rebuild ")
    assert first.splitlines()[:2] == [
        f"cut out {folder}/{0:020}.log",
        "    bytes 2533 to 2823, offsets 21 to 22, records lost: 2",
    ]
    assert done.stderr.decode().splitlines()[-1] == "nothing was changed; --apply does it"


ABORT_MARKER_CUT = GOLDEN.parent / "damage" / "05-abort-marker-cut"


def test_recover_asks_before_it_shows_what_may_be_aborted(tmp_path: Path) -> None:
    root = Path(shutil.copytree(ABORT_MARKER_CUT, tmp_path / "data"))
    next(root.glob("*/*.txnindex")).unlink()
    before = fingerprint(root)
    plan = read_json(1, "recover", str(root))
    (row,) = [row for row in plan if row["action"] == "make visible"]
    assert row["why"].startswith(
        "records 53, 55: aborted or not can't be told; they will be visible to read_committed: "
    )
    assert (row["offset"], row["last_offset"], row["records_lost"]) == (53, 55, 0)
    done = call_plog("recover", str(root), "--apply")
    assert done.returncode == 1
    assert b"records 53, 55: aborted or not can't be told" in done.stderr
    assert b"nothing was changed; with --accept-visible it is done" in done.stderr
    assert fingerprint(root) == before
    assert call_plog("recover", str(root), "--apply", "--accept-visible").returncode == 0
    offsets = ok("consume", "txn_interleaved", "--data-dir", str(root), "--format", "%o\n").split()
    assert {b"53", b"55", b"62"} <= set(offsets)


@pytest.mark.longer
def test_what_was_aborted_stays_so_for_plogs_own_server(tmp_path: Path) -> None:
    root = Path(shutil.copytree(ABORT_MARKER_CUT, tmp_path / "data"))
    assert call_plog("recover", str(root), "--apply").returncode == 0
    expected = ok("consume", "txn_interleaved", "--data-dir", str(root), "--format", "%o\n").split()
    assert not {b"53", b"55"} & set(expected)
    assert {b"62", b"63", b"64", b"66"} <= set(expected)
    with Server(root, "--read-only") as server:
        address = server.address
        served = ok("consume", "txn_interleaved", "--bootstrap-server", address, "--format", "%o\n").split()
    assert served == expected


def test_recover_says_that_one_before_was_cut_short(damaged: Path) -> None:
    before = {name: found[1] for name, found in fingerprint(damaged).items()}
    folder = damaged / "c_torn_tail-0"
    (folder / "recovering").mkdir()
    (folder / "recovery-journal").write_text('{"run": 1, "lost": []}\n{"run": 1, "na')
    assert b"a recovery was cut short there" in call_plog("recover", str(damaged)).stderr
    done = call_plog("recover", str(damaged), "--undo")
    assert (done.returncode, b"what a recovery that was cut short left is removed" in done.stderr) == (0, True)
    assert {name: found[1] for name, found in fingerprint(damaged).items()} == before


def test_recover_says_what_it_takes_back_of_one_before(damaged: Path) -> None:
    left, torn = damaged / "c_torn_tail-0", damaged / "c_bitflip_middle-0"
    (left / "recovering").mkdir()
    (torn / "recovery-journal").write_text('{"run": 1, "na')
    told = call_plog("recover", str(damaged), "--apply").stderr.decode()
    for folder in (left, torn):
        assert f"{folder}: a recovery that was cut short is taken back first\n" in told
    assert not (left / "recovering").exists()


def test_recover_used_wrongly(damaged: Path) -> None:
    assert call_plog("recover", str(damaged), "--undo", "--apply").returncode == 2
    log = damaged / "c_torn_tail-0" / "00000000000000000000.log"
    done = call_plog("recover", str(log))
    assert done.returncode == 3
    assert b"name the partition's folder" in done.stderr


def test_gaps_and_their_certificate(tmp_path: Path) -> None:
    certificate = tmp_path / "account.json"
    rows = read_json(0, "gaps", str(SOUND), "--certificate", str(certificate))
    assert {row["reason"] for row in rows} == {"aborted", "control record"}
    (account,) = json.loads(certificate.read_text())["partitions"]
    missing = sum(row["count"] for row in account["gaps"])
    records = ok("consume", "txn_multisegment", "--data-dir", str(SOUND), "--format", "%o\n").split()
    assert (account["records"], missing) == (len(records), 226 - len(records))
    done = call_plog("gaps", str(DAMAGED / "c_bitflip_middle-0"))
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split()[:4] == [b"c_bitflip_middle-0", b"21-22", b"2", b"damaged"]
    assert call_plog("gaps", str(SOUND), "--isolation", "serializable").returncode == 2
    nowhere = str(tmp_path / "nowhere" / "account.json")
    assert call_plog("gaps", str(SOUND), "--certificate", nowhere).returncode == 3
    assert call_plog("stats", str(SOUND), "--html", nowhere).returncode == 3


@pytest.mark.parametrize(("start", "first"), [("-3", 223), ("-1", 225), ("226", 226), ("-99999", 0)])
def test_gaps_from_n_before_the_end(start: str, first: int, tmp_path: Path) -> None:
    """The log has offsets 0 to 225, and -N is the same place to `consume`. The last two are markers."""
    certificate = tmp_path / "account.json"
    rows = read_json(0, "gaps", str(SOUND), "--from", start, "--certificate", str(certificate))
    (account,) = json.loads(certificate.read_text())["partitions"]
    assert (account["start_offset"], account["end_offset"]) == (first, 226)
    assert {224, 225} & set(range(first, 226)) == {row["start_offset"] for row in rows if row["start_offset"] > 223}
    assert account["records"] + sum(row["count"] for row in rows) == 226 - first
    assert call_plog("gaps", str(SOUND), "--until", "-3").returncode == 2


def test_gaps_lists_losses_alone(tmp_path: Path) -> None:
    certificate = tmp_path / "account.json"
    whole = read_json(1, "gaps", str(DAMAGED / "c_bitflip_middle-0"))
    assert [row for row in whole if row["reason"] == "damaged"] == whole
    assert read_json(1, "gaps", str(DAMAGED / "c_bitflip_middle-0"), "--lost") == whole
    assert read_json(0, "gaps", str(SOUND), "--lost", "--certificate", str(certificate)) == []
    (account,) = json.loads(certificate.read_text())["partitions"]
    assert {row["reason"] for row in account["gaps"]} == {"aborted", "control record"}


@for_each("retention_ms, when", [(1, "was"), (10**12, "is")])
def test_a_trace_knows_whether_retention_is_due(tmp_path: Path, retention_ms: int, when: str) -> None:
    where = ["--data-dir", str(tmp_path / f"{when} due")]
    ok("topic", "create", "t", "--set", f"retention.ms={retention_ms}", *where)
    ok("produce", "t", "--format", "envelope", *where, stdin=b'{"value": "v", "timestamp": 1700000000000}\n')
    due = datetime.fromtimestamp(1_700_000_000 + retention_ms / 1000, UTC).isoformat(timespec="milliseconds")
    told = f"its segment {when} due for deletion at {due.replace('+00:00', 'Z')}"
    assert told in ok("trace", "t@0", *where).decode()


def test_trace(damaged: Path) -> None:
    (found,) = read_json(0, "trace", "txn_multisegment@3", "--data-dir", str(SOUND))
    assert found["transaction"]["state"] == "aborted"
    assert found["batch"]["position"] == 420
    text = ok("trace", "txn_multisegment:0@3", "--data-dir", str(SOUND)).decode()
    assert "aborted, from offset 0, marker at offset 34" in text
    assert not text.startswith("what")
    csv = ok("trace", "txn_multisegment:0@3", "--data-dir", str(SOUND), "--output", "csv").splitlines()
    assert csv[:2] == [b"what,value", b"record,txn_multisegment-0 offset 3"]
    (found,) = read_json(0, "trace", "txn_multisegment", "--key", "k917", "--data-dir", str(SOUND))
    assert found["record"]["key"] == "k917"
    assert call_plog("trace", "txn_multisegment@99999", "--data-dir", str(SOUND)).returncode == 1
    assert call_plog("trace", "nobody@1", "--data-dir", str(SOUND)).returncode == 1
    assert call_plog("trace", "txn_multisegment", "--data-dir", str(SOUND)).returncode == 2
    done = call_plog("trace", "c_bitflip_middle@21", "--data-dir", str(damaged))
    assert done.returncode == 1
    assert b"crc-mismatch" in done.stderr


def test_diff_of_headers_alone(tmp_path: Path) -> None:
    sound = GOLDEN / "codec_none_rdkafka"
    copy = shutil.copytree(sound, tmp_path / "copy-0")
    (log,) = copy.glob("*.log")
    data = bytearray(log.read_bytes())
    data[12:16] = bytes([0, 0, 0, 7])  # the leader epoch, which no checksum covers
    log.write_bytes(data)
    (row,) = read_json(1, "diff", str(sound), str(copy))
    assert (row["kind"], row["offset"], row["detail"]) == ("batch differs", 0, "leader epoch 0 and 7")


def test_diff() -> None:
    arguments = [str(GOLDEN / "c_bitflip_middle"), str(GOLDEN / "c_bitflip_middle.recovered")]
    rows = read_json(1, "diff", *arguments)
    assert rows == [
        {"kind": "only in A", "offset": 21, "last_offset": 39, "detail": "after the other's last record",
         "position_a": 2533, "position_b": None}
    ]  # fmt: skip
    assert b"the copies part at offset 21; 21 records the same" in call_plog("diff", *arguments).stderr
    assert call_plog("diff", arguments[0], arguments[0]).returncode == 0


def test_stats(tmp_path: Path) -> None:
    (found,) = read_json(0, "stats", str(SOUND))
    assert found["summary"]["records"] == 212
    text = ok("stats", str(SOUND)).decode()
    assert "txn_multisegment-0: 212 records in 91 batches" in text
    rows = read_json(0, "gaps", str(SOUND))
    aborted = sum(row["count"] for row in rows if row["reason"] == "aborted")
    assert f"\n  {aborted} of the records aborted or in open transactions\n" in text
    assert "\n  48 batches older than one before, by 448 ms at most\n" in text, "by Kafka's dump, markers apart"
    assert "zstd     would save " in text
    page = tmp_path / "report.html"
    done = call_plog("stats", str(SOUND), str(DAMAGED), "--html", str(page))
    assert done.returncode == 1, "there is damage"
    assert "c_torn_tail-0" in page.read_text()
    assert ok("stats", str(SOUND), "--output", "csv").splitlines()[0].startswith(b"log,records,batches,size_bytes")


def test_dump_by_key_and_format() -> None:
    log = str(SOUND / "txn_multisegment-0" / "00000000000000000000.log")
    lines = ok("dump-segment", log, "--key", "k917", "--format", "kafka").decode().splitlines()
    assert [line.startswith("| ") for line in lines[2:]] == [False, True] * ((len(lines) - 2) // 2)
    assert all(" key: k917 " in line for line in lines[3::2])
    rows = ok(
        "dump-segment", log, "--key", "k917", "--format", "ndjson", "--value-format", "json", "--key-format", "hex"
    )
    first = json.loads(rows.splitlines()[0])
    assert (first["key"], first["value"]["i"]) == ("6b393137", 0)
    text = ok("dump-segment", log, "--print-data-log", "--max-records", "1", "--key-format", "base64").decode()
    assert " key: azI5MQ== payload: {" in text
    assert call_plog("dump-segment", log, "--value-format", "nonsense").returncode == 2


def test_dump_hex() -> None:
    text = ok("dump-segment", "--hex", str(GOLDEN / "headers" / "00000000000000000000.log")).decode()
    assert text.startswith(f"{GOLDEN}/headers/00000000000000000000.log: log\n00000000  00 ")
    assert "00000000  00 00 00 00 00 00 00 00                          base offset: 0" in text
    assert "header key: a" in text
    index = ok("dump-segment", "--hex", str(GOLDEN / "multisegment" / "00000000000000000000.index")).decode()
    assert "relative offset: " in index


@for_each("option", ["--offset 3", "--time -2h", "--max-records 1", "--max-bytes 9", "--key k"])
def test_dump_hex_leaves_nothing_out(option: str) -> None:
    done = call_plog("dump-segment", "--hex", str(GOLDEN / "headers"), *option.split())
    assert done.returncode == 2
    assert f"--hex shows every byte of a file, and {option.split()[0]} leaves some out".encode() in done.stderr


def test_a_directory_is_dumped_from_the_offset_on() -> None:
    rows = [json.loads(line) for line in ok(
        "dump-segment", str(GOLDEN / "multisegment"), "--offset", "150", "--deep-iteration", "--format", "ndjson"
    ).splitlines()]  # fmt: skip
    assert min(row["offset"] for row in rows if row["kind"] == "log") == 150


def test_kafkas_options(tmp_path: Path) -> None:
    """The text is that of Kafka 4.3.1's own tool with the same options."""
    nulls = str(GOLDEN / "nulls" / "00000000000000000000.log")
    lines = ok("dump-segment", "--files", nulls, "--print-data-log", "--skip-record-metadata").decode().split("\n")
    assert lines[3:8] == ["", "| payload: ", "| payload: v", "| key: ", "| key:  payload: "]
    aborted = str(GOLDEN / "txn_aborted" / "00000000000000000000.log")
    text = ok("dump-segment", aborted, "--print-data-log", "--max-bytes", "700", "--format", "kafka").decode()
    assert max(int(line.split()[2]) for line in text.splitlines() if line.startswith("| offset")) == 3
    bare = ok("dump-segment", aborted, "--print-data-log", "--skip-record-metadata", "--format", "kafka").decode()
    assert "endTxnMarker" not in bare
    (tmp_path / "copied").mkdir()
    for name, decoder in (("__consumer_offsets-0", "--offsets-decoder"),
                          ("__transaction_state-0", "--transaction-log-decoder")):  # fmt: skip
        copy = tmp_path / "copied" / "00000000000000000000.log"
        copy.write_bytes((GOLDEN / name / copy.name).read_bytes())
        text = ok("dump-segment", str(copy), decoder, "--format", "kafka").decode()
        expected = (GOLDEN / f"{name}.decoded.txt").read_text().split("\n", 1)[1]
        assert text.split("\n", 1)[1] == expected
    assert call_plog("dump-segment").returncode == 2
