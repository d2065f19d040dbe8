"""Every script of benchmarks/ runs to its end with tiny sizes, so that the figures of RESULTS.md can be measured again.

The figures of these runs mean nothing: JVMs run without their second compiler, and the machine's memory is not filled.
Of those that start JVMs the longer tier runs one for servers and one for clients, and of `scale` some rows;
`scripts/torture --benchmarks` runs all.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from tests.interop.clients import requires_kcat
from tests.support.oracle import requires_kafka, requires_kafka39, why_not
from tests.support.zookeeper_server import requires_zookeeper

ROOT = Path(__file__).resolve().parents[2]


class Benchmark(NamedTuple):
    """The options of a run of a few seconds, and the marks of its test. `rows`: of many, those that the longer tier
    measures.
    """

    options: str
    marks: tuple[pytest.MarkDecorator, ...] = ()
    rows: str = ""


KAFKA = (requires_kafka, pytest.mark.java)
BENCHMARKS = {
    "acl_rules": Benchmark("--rounds 1 --acls 200 --users 5 --decisions 200"),
    "broker": Benchmark(
        "--rounds 1 --warm-up 0 --megabytes 1 --no-full-memory --only 'librdkafka | 200 B | 16 KB' "
        "--only 'java | 1000 B | 128 KB'",
        KAFKA,
    ),
    "cleaning_latency": Benchmark("--rounds 1 --records 20000 --keys 100"),
    "commands": Benchmark("--rounds 1"),
    "compaction": Benchmark("--rounds 1 --records 20000 --keys 100", KAFKA),
    "controller": Benchmark(
        "--rounds 1 --partitions 100 --of-a-topic 10 --topics 5 --idle-seconds 0.1 --only take-over --only plog",
        (requires_zookeeper, requires_kafka39, pytest.mark.java),
    ),
    "durability": Benchmark("--rounds 1 --seconds 0.1 --megabytes 1 --unflushed-megabytes 2 --partitions 2", KAFKA),
    "fairness": Benchmark("--before . --rounds 1 --records 20000 --partitions 10 --requests 500"),
    "followed_requests": Benchmark("--rounds 1 --seconds 0.2 --warm-up 10", (requires_zookeeper, *KAFKA)),
    "follower": Benchmark("--rounds 1 --megabytes 1 --producer"),
    "groups": Benchmark("--rounds 1 --warm-up 0 --members 5", KAFKA),
    "inspect": Benchmark("--rounds 1 --gigabytes 0.001 --segment-records 2000 --presses 2"),
    "inspector": Benchmark("--rounds 1 --megabytes 1 --records 2000 --codecs", KAFKA),
    "mixed_cluster": Benchmark(
        "--rounds 1 --warm-up 0 --megabytes 1 --records 100", (requires_kafka39, pytest.mark.java)
    ),
    "readers": Benchmark("--before . --rounds 1 --warm-up 0 --megabytes 1 --only plain"),
    "replication": Benchmark("--rounds 1 --megabytes 1"),
    "request_path": Benchmark("--rounds 1 --requests 20 --no-full-memory"),
    "requests": Benchmark(
        "--rounds 1 --warm-up 0 --requests 200 --latencies 10 --connections 5 --idle-seconds 0.1", KAFKA
    ),
    "rights": Benchmark("--before . --rounds 1 --requests 20 --acls 10"),
    "scale": Benchmark(
        "--rounds 1 --commits 2000 --commits-at-once 100 --partitions 20 --topics 20 --segments 50 --keys 20000 "
        "--producers 100 --rolls 1 --megabytes 2 --start-partitions 2 --start-segments 10 --seconds 0.3 --readers 1 "
        "--tail-readers 5 --tail-records 20 --large-batches 2 --no-full-memory",
        rows="sizes start plan tail",
    ),
    "secured_broker": Benchmark("--rounds 1 --warm-up 0 --megabytes 1", KAFKA),
    "secured_client": Benchmark("--rounds 1 --warm-up 0 --records 1000", KAFKA),
    "shell": Benchmark("--rounds 1 --lines 1000", (requires_kcat,)),
    "spark": Benchmark("--rounds 1 --warm-up 0 --records 4000", (requires_zookeeper, *KAFKA)),
    "start": Benchmark("--rounds 1 --partitions 2 --segments 10 --megabytes 10"),
    "throughput": Benchmark(
        "--rounds 1 --warm-up 0 --megabytes 1 --no-full-memory --only 'java | 200 B | 16 KB | none | 1' "
        "--only 'librdkafka | 1000 B | 128 KB | zstd | 8'",
        KAFKA,
    ),
    "transactions": Benchmark("--rounds 1 --warm-up 0 --transactions 10 --pairs 1 --bytes 1000000", KAFKA),
    "versions": Benchmark(
        "--before . --watched --rounds 1 --warm-up 0 --megabytes 1 --requests 200 --latencies 10 --members 5 "
        "--seconds 0.2"
    ),
}
WITH_JVMS = {name for name, one in BENCHMARKS.items() if pytest.mark.java in one.marks} - {"groups", "compaction"}
STARTED_BY_OTHERS = {"bystander", "floor", "slow_disk"}
"""`scale`, `broker` and `durability` start them."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=one.marks) for name, one in BENCHMARKS.items()])
def test_a_benchmark_runs_with_tiny_sizes(tmp_path: Path, name: str) -> None:
    if name in WITH_JVMS and not os.environ.get("PLOG_ALL_BENCHMARKS"):
        pytest.skip("scripts/torture --benchmarks runs it")
    environment = {**os.environ, "TMPDIR": str(tmp_path), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    rows = "" if os.environ.get("PLOG_ALL_BENCHMARKS") else BENCHMARKS[name].rows
    command = [sys.executable, "-m", f"benchmarks.{name}", *shlex.split(f"{rows} {BENCHMARKS[name].options}")]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            stdout, stderr = process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the brokers that a benchmark has started and not stopped
    assert process.returncode == 0, stderr.decode()
    assert re.search(rb"\d", stdout), "it prints no figures"


def test_all_benchmarks_are_run() -> None:
    texts = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    scripts = {name for name, text in texts.items() if '__name__ == "__main__"' in text}
    assert scripts == BENCHMARKS.keys() | STARTED_BY_OTHERS
    for name in STARTED_BY_OTHERS:
        assert any(f"benchmarks.{name}" in text for other, text in texts.items() if other != name)


class UnderstoodError(Exception):
    """Ends a benchmark when its options are read."""


def complaint_about(name: str, arguments: list[str]) -> str:
    """Returns the error with which a benchmark refuses its options; "" if it accepts them."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser) -> None:
        parse_args(parser, arguments)
        raise UnderstoodError

    with (
        contextlib.redirect_stderr(io.StringIO()) as said,
        mock.patch("argparse.ArgumentParser.parse_args", parse),
        contextlib.suppress(UnderstoodError, SystemExit),
    ):
        importlib.import_module(f"benchmarks.{name}").main()
    return said.getvalue()


def written_commands() -> Iterator[tuple[str, str, list[str]]]:
    """Yields the file, the benchmark and the options of each command line in RESULTS.md, in docs/, and in the help of
    the benchmarks. In the help, optional parts are in brackets, and long lines go on after eight spaces.
    """
    paths = [ROOT / "benchmarks" / "RESULTS.md", *(ROOT / "docs").glob("*.md")]
    for path in [*paths, *(ROOT / "benchmarks" / f"{name}.py" for name in BENCHMARKS)]:
        text = re.sub(r"\n {8}(?=\[)", " ", path.read_text().partition("from __future__")[0])
        for name, options in re.findall(r"python -m benchmarks\.(\w+)([^\n`(]*)", text):
            yield path.name, name, shlex.split(options.replace("[", "").replace("]", ""))


def test_the_commands_of_the_results_and_of_the_help_are_understood() -> None:
    commands = list(written_commands())
    told = {name for where, name, _ in commands if where == f"{name}.py"}
    assert told == BENCHMARKS.keys(), "the help of each has an example"
    found = {f"{where}: {name} {options}": complaint_about(name, options) for where, name, options in commands}
    assert not any(found.values()), {command: text for command, text in found.items() if text}


def test_a_benchmark_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name, **_: None)
    why_not.cache_clear()
    try:
        for name, benchmark in BENCHMARKS.items():
            if benchmark.marks:
                monkeypatch.setattr(sys, "argv", [name, *shlex.split(benchmark.options)])
                with pytest.raises(SystemExit, match="error: this needs"):
                    importlib.import_module(f"benchmarks.{name}").main()
    finally:
        why_not.cache_clear()
