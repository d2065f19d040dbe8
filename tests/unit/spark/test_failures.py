"""What fails in a replay is told in words: what, where, and that the same command again goes on. No Spark here."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest

from core.common.errors import AccessError, PlogError, UsageError
from core.common.user_function import load_function
from core.records.side_format import SideFormats
from core.spark.delta_table import commit_delta_table, ensure_delta
from core.spark.lake_folder import PlainFolder
from core.spark.offset_range import OffsetRange, read_range
from core.spark.partition_expression import parse_partitions
from core.spark.range_output import OutputFormat
from core.spark.replay import Replay, write_range
from core.spark.replay_plan import ReplayPlan
from core.spark.spark_session import (
    _failure,
    _jvm_failure,
    _Launcher,
    _StartWatch,
    _tell_of_waiting,
    ensure_pyspark,
    run_interruptibly,
    why_not_started,
)
from core.spark.value_decoding import Decoding, ValueDecoder
from tests.support.for_each import for_each
from tests.support.logs import NOW, FullDisk, append, fingerprint, make_batch, open_log
from tests.support.server import call_plog
from tests.support.spark.placed_files import make_beside

PARQUET = OutputFormat("parquet", "binary", "binary")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """t-0 with 40 records, whose values are JSON."""
    log = open_log(tmp_path / "data" / "t-0")
    for n in range(40):
        append(log, make_batch(json.dumps({"id": n}).encode(), timestamp=NOW + n))
    log.close()
    return tmp_path / "data"


def ranges_of(data: Path) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("t", 0, start, start + 20, 1, directory=str(data / "t-0")) for start in (0, 20))


def begun(out: Path, plan: ReplayPlan) -> Replay:
    replay = Replay(PlainFolder(out))
    replay.lock.acquire()
    replay.freeze({}, lambda: plan)
    return replay


# --- before anything starts


@pytest.mark.longer
@for_each("version, is_good", [("4.1.9", False), ("3.5.1", False), ("4.2.0.dev1", True), ("5.0", True)])
def test_a_pyspark_that_is_too_old(version: str, is_good: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.version.__version__", version)
    if is_good:
        ensure_pyspark()
        return
    with pytest.raises(AccessError, match=f"PySpark {version} is too old, expected 4.2 or newer") as caught:
        ensure_pyspark()
    assert "pip install --upgrade" in (caught.value.hint or "")


def replayed(data: Path, out: Path, *options: str) -> tuple[int, str]:
    """By the command: its exit code, and what it said."""
    done = call_plog("spark-replay", "t", "--to", f"parquet:{out}", "--data-dir", str(data), *options)
    return done.returncode, done.stderr.decode()


@pytest.mark.longer
def test_it_is_told_before_a_folder_is_made(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.version.__version__", "4.1.0")
    code, said = replayed(data, tmp_path / "out")
    assert code == 3
    assert "PySpark 4.1.0 is too old" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.longer
def test_a_request_that_makes_no_sense_leaves_no_folder(data: Path, tmp_path: Path) -> None:
    for options, expected in (
        (["--partition-by", "headers"], "can't name a folder"),
        (["--partition-by", "city"], "there is no column city"),
        (["--columns", "offset,offset"], "two columns of the output are one"),
        (["--transform", "nowhere:f"], "No module named 'nowhere'"),
    ):
        code, said = replayed(data, tmp_path / "out", *options)
        assert code == 2, options
        assert expected in said
        assert not (tmp_path / "out").exists(), options


@pytest.mark.longer
def test_a_refused_folder_is_left_as_it_is(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    before = fingerprint(out)
    code, said = replayed(data, out)
    assert code == 1
    assert "is not empty: notes.txt is in it" in said
    assert fingerprint(out) == before


def test_a_plan_that_can_not_be_is_withdrawn(data: Path, tmp_path: Path) -> None:
    """So that the command with a better --schema is not taken for another replay."""
    plan = ReplayPlan({}, ranges_of(data), PARQUET, schema="i INTT")
    replay = begun(tmp_path / "out", plan)
    replay.withdraw(plan)
    assert replay.plan is None
    direct = replace(plan, schema="")
    replay.freeze({}, lambda: direct)
    replay.finish(write_range(replay.beside, direct.ranges[0], direct))
    replay.withdraw(direct)
    assert replay.plan == direct


@for_each("is_there", [False, True])
def test_a_folder_whose_plan_is_withdrawn_is_as_it_was_found(data: Path, tmp_path: Path, is_there: bool) -> None:
    plan = ReplayPlan({}, ranges_of(data), PARQUET, schema="i INTT")
    out = tmp_path / "out"
    if is_there:
        out.mkdir()
    for _ in range(2):
        replay = Replay(PlainFolder(out))
        with replay.locked():
            replay.freeze({}, lambda: plan)
            replay.withdraw(plan)
        assert out.exists() == is_there
        assert list(tmp_path.glob("out/*")) == []


def test_a_lock_that_had_another_owner_stays(data: Path, tmp_path: Path) -> None:
    """A task of the former owner may live, and must not find its number again."""
    plan = ReplayPlan({}, ranges_of(data), PARQUET, schema="i INTT")
    with Replay(PlainFolder(tmp_path / "out")).locked():
        pass
    replay = Replay(PlainFolder(tmp_path / "out"))
    with replay.locked():
        replay.freeze({}, lambda: plan)
        replay.withdraw(plan)
    assert [path.name for path in (tmp_path / "out" / "_plog").glob("lock-*")] == ["lock-4.json"]


@pytest.mark.longer
@for_each("kind", ["parquet", "delta"])
def test_a_replay_of_nothing_has_columns(tmp_path: Path, kind: str) -> None:
    open_log(tmp_path / "data" / "t-0").close()
    out = tmp_path / "out"
    command = ["spark-replay", "t", "--to", f"{kind}:{out}", "--columns", "offset,value", "--data-dir"]
    for said in ("0 records in 1 files", "is done already"):
        done = call_plog(*command, str(tmp_path / "data"))
        assert done.returncode == 0, done.stderr
        assert said in done.stderr.decode()
    assert call_plog("spark-replay", "--verify", str(out)).returncode == 0
    assert pq.read_schema(out / "part-00000.parquet").names == ["offset", "value"]
    if kind == "delta":
        import deltalake

        assert deltalake.DeltaTable(str(out)).to_pyarrow_table().num_rows == 0


@pytest.mark.longer
def test_a_partitioned_replay_of_nothing_has_no_file(tmp_path: Path) -> None:
    open_log(tmp_path / "data" / "t-0").close()
    code, said = replayed(tmp_path / "data", tmp_path / "out", "--partition-by", "day")
    assert code == 0
    assert "0 records in 0 files" in said


@pytest.mark.longer
def test_take_over_is_of_folders(tmp_path: Path) -> None:
    done = call_plog("spark-replay", "t", "--to", "topic:u", "--take-over", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "--take-over is of folders" in done.stderr.decode()


# --- while it works


@for_each("partition_by", ["", "day"])
def test_a_full_disk(data: Path, tmp_path: Path, partition_by: str) -> None:
    plan = ReplayPlan({}, ranges_of(data), replace(PARQUET, partition_by=parse_partitions([partition_by])))
    disk = FullDisk()
    beside = make_beside(tmp_path / "out")
    disk.is_full = True
    with pytest.raises(AccessError, match=rf"^could not write {tmp_path}/out: no space left on device"):
        write_range(beside, plan.ranges[0], plan, disk)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_a_jvm_that_was_killed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    session: Any = type("Session", (), {})()
    session.sparkContext = type("Context", (), {"_gateway": type("Gateway", (), {"proc": process})()})()
    process.kill()
    found = _jvm_failure(session, tmp_path / "spark.log")
    assert found is not None
    assert found.message == f"Spark's JVM (process {process.pid}) was killed by signal 9 in the middle of the job"
    session.sparkContext._gateway.proc = None
    assert _jvm_failure(session, tmp_path / "spark.log") is None


STARTED = """WARNING: Using incubator modules: jdk.incubator.vector
2026-01-29 02:00:01.506 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform
"""
FRAMES = """	at org.apache.spark.SparkContext.<init>(SparkContext.scala:600)
	... 4 more
"""


@for_each(
    "log, reason",
    [
        (
            (
                "2026-01-29 02:00:35.295 ERROR SparkContext: Error initializing SparkContext.\n"
                "org.apache.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY.SYSTEM_MEMORY] Insufficient "
                "driver memory: System memory 419430400 must be at least 471859200.\n"
                f"Please increase heap size\n{FRAMES}"
                "2026-01-29 02:00:36.376 WARN MetricsSystem: Stopping a MetricsSystem that is not running\n"
            ),
            (
                "[INVALID_DRIVER_MEMORY.SYSTEM_MEMORY] Insufficient driver memory: System memory 419430400 must be at "
                "least 471859200."
            ),
        ),
        (
            (
                "2026-01-29 02:01:05.860 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master "
                f"127.0.0.1:1\norg.apache.spark.SparkException: Exception thrown in awaitResult: \n{FRAMES}"
                f"Caused by: java.net.ConnectException: Connection refused\n{FRAMES}"
            ),
            "all masters are unresponsive: no connection to 127.0.0.1:1",
        ),
        (
            (
                "2026-01-29 02:01:25.860 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: Master "
                "removed our application: FAILED\n"
            ),
            "Master removed our application: FAILED",
        ),
        (
            (
                "Exception in thread \"main\" org.apache.spark.SparkException: When running with master 'yarn' either "
                f"HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment.\n{FRAMES}"
            ),
            "When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment.",
        ),
        (
            (
                "Invalid maximum heap size: -Xmx1x\nError: Could not create the Java Virtual Machine.\n"
                "Error: A fatal exception has occurred. Program will exit.\n"
                "/opt/spark/bin/spark-class: line 97: CMD: bad array subscript\n"
                "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.\n"
            ),
            "Invalid maximum heap size: -Xmx1x",
        ),
        (
            (
                "ERROR SparkContext: Error initializing SparkContext.\n"
                f"io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.\n{FRAMES}"
                f"Caused by: java.io.IOException: Connection refused: /127.0.0.1:9\n{FRAMES}"
                "\t... 16 more\nCaused by: java.net.ConnectException: Connection refused\n"
            ),
            "An error has occurred. Connection refused: /127.0.0.1:9",
        ),
        (
            (
                "Error: Not allowed to specify max heap(Xmx) memory settings through java options (was -Xmx40m).\n\n"
                "WARNING: Using incubator modules: jdk.incubator.vector\n"
                "Usage: spark-submit [options] <app jar | python file | R file> [app arguments]\n"
                ' Spark on YARN only:\n  --queue QUEUE_NAME  The YARN queue to submit to (Default: "default").\n'
            ),
            "Not allowed to specify max heap(Xmx) memory settings through java options (was -Xmx40m).",
        ),
        ("", ""),
    ],
)
def test_why_spark_did_not_start(log: str, reason: str) -> None:
    """As Spark 4.3's logs have it."""
    assert why_not_started(STARTED + log) == reason


def test_masters_that_do_not_answer_are_given_up_after_sparks_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, now = tmp_path / "spark.log", [1000.0]
    monkeypatch.setattr("core.spark.spark_session.time.monotonic", lambda: now[0])
    watch = _StartWatch(log)
    log.write_text(STARTED)
    found = []
    for text, seconds in (("", 300.0), ("WARN x: Failed to connect to master a:7077\n", 0.0), ("", 20.0), ("", 10.0)):
        log.write_text(log.read_text() + text)
        now[0] += seconds
        found.append(watch.is_hopeless())
    assert found == [False, False, False, True]


def test_a_stop_that_ends_the_jvm_as_well_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service manager sends the signal to all processes of a service."""
    protocol = pytest.importorskip("py4j.protocol", reason="the extra spark is not installed")
    monkeypatch.setattr("core.spark.spark_session._LOOK_SECONDS", 0)
    for problem in (protocol.Py4JNetworkError, ConnectionRefusedError):
        session, is_stopped = Mock(), Event()
        type(session)._get_j_spark_session_class = Mock()
        session.sparkContext.cancelAllJobs.side_effect = problem

        def stop(is_stopped: Event = is_stopped) -> None:
            is_stopped.set()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_interruptibly(session, is_stopped.wait, stop)


def test_a_cluster_that_has_nobody_for_a_job_is_told_of_once(tmp_path: Path) -> None:
    log, told = tmp_path / "spark.log", list[str]()
    look = _tell_of_waiting(log, told.append)
    waits = "Initial job has not accepted any resources; check your cluster UI"
    for text in (STARTED, f"2026-01-29 02:03:05 WARN TaskSchedulerImpl: {waits}\n" * 2):
        log.write_text(text)
        look()
        look()
    assert told == [f"Spark waits: {waits} (see {log})"]


@for_each("code", [0, 3])
def test_a_launcher_that_ends_has_failed_whatever_it_says(code: int) -> None:
    """PySpark waits for ever for one that ends with 0, and has told nothing."""
    with _Launcher([sys.executable, "-c", f"raise SystemExit({code})"]) as process:
        assert process.poll() in (None, code or 1)
        process.wait()
        assert process.poll() == (code or 1)


BROKEN = "import a_module_that_deltalake_needs\n"


@for_each(
    "files, said, hint",
    [
        ({}, "--to delta needs the package deltalake", "pip install 'plog-kafka[delta]'"),
        (
            {"__init__.py": BROKEN},
            (
                "--to delta needs the package deltalake, which is there and can't be used: No module named "
                "'a_module_that_deltalake_needs'"
            ),
            "--force-reinstall",
        ),
        (
            {"__init__.py": "CommitProperties = DeltaTable = Schema = 1\n"},
            "can't be used: cannot import name",
            "upgrade",
        ),
        (
            {
                "__init__.py": "CommitProperties = DeltaTable = Schema = Transaction = 1\n",
                "transaction.py": BROKEN,
            },
            "'a_module_that_deltalake_needs'",
            "--force-reinstall",
        ),
    ],
)
def test_a_deltalake_that_lacks_something(
    files: dict[str, str], said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told before anything is replayed, and in its own words."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "deltalake"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name, text in files.items():
        (tmp_path / "deltalake").mkdir(exist_ok=True)
        (tmp_path / "deltalake" / name).write_text(text)
    with pytest.raises(AccessError) as caught:
        ensure_delta()
    for name in [name for name in sys.modules if name.partition(".")[0] == "deltalake"]:
        del sys.modules[name]
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_function_that_needs_pandas(tmp_path: Path) -> None:
    text = (
        "x\npyspark.errors.PySparkImportError: [PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be installed; however, not"
    )
    error = _failure(Exception(text), tmp_path / "spark.log")
    assert error.message == "the function of --transform needs pandas, and it is not installed"
    assert error.hint == "pip install pandas"


def test_the_hint_of_what_failed_in_a_task_is_shown(tmp_path: Path) -> None:
    try:
        raise PlogError("bytes of a record", hint="base64 holds them")
    except PlogError:
        text = traceback.format_exc()
    error = _failure(Exception(f"{text}\n\tat org.apache.spark.Task.run(Task.scala:1)\n"), tmp_path / "spark.log")
    assert (error.message, error.hint) == ("the Spark job failed: bytes of a record", "base64 holds them")


def test_a_module_that_needs_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job_with_pandas.py").write_text("import pandas_that_is_not_here\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(UsageError, match=r"--transform job_with_pandas:f: No module named 'pandas_that_is_not_here'"):
        load_function("job_with_pandas:f", "--transform")


JSON_VALUES = Decoding(SideFormats(key="none", value="json"))


def json_range(folder: Path, *values: bytes | None) -> OffsetRange:
    log = open_log(folder)
    append(log, make_batch(*values))  # type: ignore[arg-type]
    log.close()
    return OffsetRange("t", 0, 0, len(values), 1, directory=str(folder))


@for_each(
    "value, end, text",
    [
        (b'{"id": 2} trailing', 9, "trailing"),
        (b'{"id":3}{"id":4}', 8, '{"id":4}'),
        (b'{"id":"}"}\n\n {', 10, "{"),
        (b"[1, 2] 3", 6, "3"),
        (b"{'id': '}\\''} x", 13, "x"),
        (b'"a" "b"', 3, '"b"'),
        (b"12 13", 2, "13"),
        (b'{"id":NaN} x', 10, "x"),
    ],
)
def test_text_after_a_json_value(tmp_path: Path, value: bytes, end: int, text: str) -> None:
    """Spark takes the first value, in FAILFAST too, and drops the rest."""
    range_ = json_range(tmp_path / "t-0", b'{"id":1}', value)
    with pytest.raises(PlogError) as caught:
        list(read_range(range_, ("value",), decoder=ValueDecoder(JSON_VALUES)))
    assert caught.value.message == f"t-0: the value of offset 1 has text after its JSON, at byte {end}: {text!r}"
    assert sum(map(len, read_range(range_, ("value",)))) == 2


@for_each(
    "value",
    [b'{"id":1}', b" [1] \r\n", None, b"null", b"tru", b'{"a":[1', b"{'a':1}", b'{"a":NaN}', b"-1e5"],
)
def test_what_is_one_value_or_none_is_sparks_to_judge(tmp_path: Path, value: bytes | None) -> None:
    range_ = json_range(tmp_path / "t-0", value)
    assert sum(map(len, read_range(range_, ("value",), decoder=ValueDecoder(JSON_VALUES)))) == 1


@pytest.mark.longer
def test_a_delta_table_of_nothing(tmp_path: Path) -> None:
    commit_delta_table(tmp_path, [], (), "id")
    assert list(tmp_path.iterdir()) == []


# --- the proof


def test_verify_without_a_receipt(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = ReplayPlan({}, ranges_of(data), PARQUET)
    replay = begun(out, plan)
    for range_ in plan.ranges:
        replay.finish(write_range(replay.beside, range_, plan))
    replay.commit(plan)
    lost = out / "_plog" / "receipts" / f"{plan.ranges[0].name}.json"
    lost.unlink()
    done = call_plog("spark-replay", "--verify", str(out))
    assert done.returncode == 1
    assert f"_plog/receipts/{lost.name} is missing" in done.stderr.decode()
    assert "as the manifest says; 1 of 2 ranges were not compared with the log" in done.stderr.decode()
    assert "exact" not in done.stderr.decode()


def test_a_full_disk_may_be_the_outputs_or_sparks_own(tmp_path: Path) -> None:
    error = _failure(Exception("Caused by: java.io.IOException: No space left on device"), tmp_path / "spark.log")
    assert str(error) == "the Spark job failed: No space left on device"
    assert error.hint is not None
    assert str(tmp_path) in error.hint


def test_an_exception_without_words_is_named(tmp_path: Path) -> None:
    python = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\nMemoryError\n"
    error = _failure(Exception(f"org.apache.spark.api.python.PythonException: {python}\n\tat x\n"), tmp_path / "log")
    assert error.message == "the Spark job failed: MemoryError"
