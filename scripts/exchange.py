"""Uses with one commit what another one left on the disk, both ways: data directories, locks, journals of recoveries,
manifests of replays, checkpoints of streams.

    python -m scripts.exchange                the commit before HEAD, and HEAD
    python -m scripts.exchange OLD            that one, and HEAD
    python -m scripts.exchange OLD --no-spark without what starts a JVM

Each check is a step by one commit and a step by the other, in a directory of its own. Both run with the packages of
this environment. Exits with 1 if a check fails, and says which, with the command and what it said.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.spark.java_home import java_environment
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]
DAMAGED = ROOT / "tests" / "golden" / "damage" / "09-swapped-batches"
_KEPT_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": ""}
"""What is compiled of a tree is kept in the tree: else each of its commands would compile all again."""
_STREAM = """
import sys
from pyspark.sql import SparkSession
from plog.spark import register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
for source, target, checkpoint in zip(*[iter(sys.argv[1:])] * 3):
    rows = spark.readStream.format("plog").options(path=source, subscribe="t", startingOffsets="earliest").load()
    rows = rows.selectExpr("CAST(value AS STRING)")
    writer = rows.writeStream.format("json").option("path", target).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
"""


_COMMANDS = """
import json, sys
from tests.support.server import call_plog
for line in sys.stdin:
    stdin, *arguments = json.loads(line)
    done = call_plog(*arguments, stdin=stdin.encode())
    print(json.dumps([done.returncode, done.stdout.decode(), done.stderr.decode()]), flush=True)
"""


class Commit:
    """The tree of a commit, whose commands are run; `environment` is theirs beside the usual one. One process runs all
    but those that start Spark, until `stop`.
    """

    def __init__(self, name: str, tree: Path, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.tree = tree
        self.environment = {"PYTHONPATH": str(tree), "NO_COLOR": "1", **(environment or {})}
        self._commands: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str | Path, module: str = "plog") -> subprocess.Popen[bytes]:
        """A command, with its output in pipes."""
        command = [sys.executable, *(["-m", module] if module != "-c" else ["-c"]), *map(str, arguments)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, **self.environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=self.tree)

    def run(self, *arguments: str | Path, stdin: bytes = b"", code: int = 0) -> bytes:
        """Returns what a command prints. Raises AssertionError if it ends with another code."""
        if arguments[0] == "spark-replay":
            with self.start(*arguments) as process:
                stdout, stderr = process.communicate(stdin)
                found = process.returncode
        else:
            found, stdout, stderr = self._call(json.dumps([stdin.decode(), *map(str, arguments)]))
        shown = " ".join(map(str, arguments[:4]))
        assert found == code, f"{self.name}: plog {shown} ends with {found}: {stderr.decode()}"
        return stdout

    def _call(self, command: str) -> tuple[int, bytes, bytes]:
        process = self._commands = self._commands or self.start(_COMMANDS, module="-c")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{command}\n".encode())
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"{self.name}: {process.communicate()[1].decode()}"
        code, stdout, stderr = json.loads(answer)
        return code, stdout.encode(), stderr.encode()

    def stop(self) -> None:
        """Ends the process of its commands; the next command starts another."""
        if self._commands is not None:
            self._commands.communicate()
            self._commands = None

    def run_python(self, text: str, *arguments: str | Path) -> None:
        with self.start(text, *arguments, module="-c") as process:
            stderr = process.communicate()[1].decode()
        assert process.returncode == 0, f"{self.name}: a source of a stream ends with {process.returncode}: {stderr}"


Check = Callable[[Commit, Commit, Path], None]


def directory(one: Commit, other: Commit, place: Path) -> None:
    """Records, a group and a transaction of one are there for the other, which goes on."""
    where = ("--data-dir", place)
    one.run("topic", "create", "t", "--partitions", "2", *where)
    one.run("produce", "t", "--key-separator", ":", "--compression", "zstd", *where, stdin=b"a:1\nb:2\nc:3\n")
    one.run("produce", "t", "--transactional-id", "x", *where, stdin=b"in a transaction\n")
    one.run("consume", "t", "--group", "g", "--max-messages", "2", *where)
    before = [one.run(*command, *where) for command in _SAID]
    assert before == [other.run(*command, *where) for command in _SAID], "both say the same"
    other.run("verify", place)
    other.run("produce", "t", "--transactional-id", "x", *where, stdin=b"in the next\n")
    rest = other.run("consume", "t", "--group", "g", "--max-messages", "3", *where).splitlines()
    assert len(rest) == 3, rest
    assert one.run("consume", "t", *where) == other.run("consume", "t", *where), "both read the same"
    one.run("verify", "--deep", place)


_SAID = (
    ("consume", "t", "--format", "json"),
    ("topic", "describe", "t", "--output", "json"),
    ("group", "list", "--output", "csv"),
    ("transaction", "list", "--output", "json"),
    ("config", "describe", "topic", "t", "--all", "--output", "json"),
)


def killed_server(one: Commit, other: Commit, place: Path) -> None:
    """The other commit finds the server of a directory by its lock, and starts on it after a kill -9."""
    with _serving(one, place) as server:
        other.run("produce", "t", "--bootstrap-server", _address(place), stdin=b"1\n2\n")
        other.run("produce", "t", "--data-dir", place, stdin=b"3\n")  # the lock says where the server is
        server.send_signal(signal.SIGKILL)
        server.wait()
    with _serving(other, place):
        found = one.run("consume", "t", "--bootstrap-server", _address(place))
        assert found == b"1\n2\n3\n", found
    one.run("verify", place)


@contextmanager
def _serving(commit: Commit, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    ready = place.with_suffix(".ready")
    ready.unlink(missing_ok=True)
    listen = ("--listen", "127.0.0.1:0", "--set", "auto.create.topics.enable=true")
    with commit.start("serve", "--data-dir", place, "--ready-file", ready, *listen) as server:
        wait_until(lambda: ready.exists() or server.poll() is not None, "plog serve is ready, or ends")
        assert ready.exists(), f"{commit.name}: plog serve does not start"
        if not (place / "t-0").exists():
            commit.run("topic", "create", "t", "--bootstrap-server", _address(place))
        try:
            yield server
        finally:
            server.terminate()
            server.communicate()


def _address(place: Path) -> str:
    return place.with_suffix(".ready").read_text().split()[0]


def undone_recovery(one: Commit, other: Commit, place: Path) -> None:
    """What one recovered the other finds sound, and undoes: the folder is as it was."""
    shutil.copytree(DAMAGED, place)
    before = _bytes_of(place)
    one.run("recover", place, "--apply")
    other.run("verify", place)
    other.run("recover", place, "--undo")
    after = _bytes_of(place)
    assert after == before, sorted({name for name, _ in before.items() ^ after.items()})


def _bytes_of(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def compacted_log(one: Commit, other: Commit, place: Path) -> None:
    """What one compacted the other reads, and compacts further."""
    where = ("--data-dir", place)
    compacted = ("--set", "cleanup.policy=compact", "--set", "segment.bytes=1048576", "--set", "segment.ms=100")
    one.run("topic", "create", "t", *compacted, *where)
    for commit in (one, other, one):
        lines = b"".join(b"k%d:%d %s\n" % (n % 10, n, commit.name.encode()) for n in range(100))
        one.run("produce", "t", "--key-separator", ":", *where, stdin=lines)
        time.sleep(0.15)  # so that the next batch begins a segment
        commit.run("compact", place / "t-0", "--apply")
        assert one.run("consume", "t", *where) == other.run("consume", "t", *where), "both read the same"
    other.run("verify", "--deep", place)


def replay(one: Commit, other: Commit, place: Path) -> None:
    """A replay by one is whole for the other; what came since is replayed by the other beside it."""
    data, target = place / "data", place / "replayed"
    one.run("produce", "t", "--data-dir", data, stdin=b"1\n2\n3\n")
    command = ("spark-replay", "t", "--data-dir", data, "--to", f"json:{target}", "--master", "local[1]")
    one.run(*command)
    files = _bytes_of(target)
    other.run(*command)
    assert _bytes_of(target) == files, "a replay that is done is done again"
    other.run("spark-replay", "--verify", target, "--data-dir", data)


def stream(one: Commit, other: Commit, place: Path) -> None:
    """A stream goes on from the checkpoint of the other commit: each record once. One stream for each order: the other
    commit goes on with the one and begins the next, as a start of Spark costs more than both.
    """

    def go_on(commit: Commit, *streams: tuple[Path, bytes]) -> None:
        paths = []
        for folder, lines in streams:
            commit.run("produce", "t", "--data-dir", folder / "data", stdin=lines)
            paths += [folder / "data", folder / "streamed", folder / "checkpoint"]
        commit.run_python(_STREAM, *paths)

    first, second = place / f"of-{one.name}", place / f"of-{other.name}"
    go_on(one, (first, b"1\n2\n"))
    go_on(other, (first, b"3\n"), (second, b"1\n2\n"))
    go_on(one, (second, b"3\n"))
    for folder in (first, second):
        values = sorted(line for file in (folder / "streamed").glob("*.json") for line in file.read_text().splitlines())
        assert values == [f'{{"value":"{n}"}}' for n in range(1, 4)], (folder.name, values)


CHECKS: tuple[Check, ...] = (directory, killed_server, undone_recovery, compacted_log)
WITH_SPARK: tuple[Check, ...] = (replay, stream)
_BOTH_WAYS = (stream,)
"""Those that one call plays in both orders."""


def exchange(old: Commit, new: Commit, place: Path, checks: tuple[Check, ...]) -> list[str]:
    """Returns a line for each check that fails, by either order of the two commits."""
    failed = []
    if set(checks) & set(WITH_SPARK):
        java = java_environment(place / "java")
        old.environment |= java
        new.environment |= java
    for check in checks:
        orders = ((old, new), (new, old))[: 1 if check in _BOTH_WAYS else 2]
        for one, other in orders:
            title = f"{check.__name__}: {one.name}, then {other.name}"
            try:
                check(one, other, place / f"{check.__name__}-{one.name}")
                print(f"well: {title}", flush=True)
            except AssertionError as error:
                print(f"FAILS: {title}: {error}", flush=True)
                failed.append(title)
    return failed


@contextmanager
def trees(old: str) -> Iterator[tuple[Commit, Commit, Path]]:
    """The tree of that commit, in a folder of its own that is deleted, and this one. CalledProcessError without git."""
    with tempfile.TemporaryDirectory(prefix="plog-exchange-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        archive = subprocess.run(["git", "archive", old], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], check=True, input=archive)
        commits = Commit("old", tree, _KEPT_BYTECODE), Commit("new", ROOT)
        try:
            yield *commits, Path(folder)
        finally:
            for commit in commits:
                commit.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.exchange", description=__doc__)
    parser.add_argument("old", nargs="?", default="HEAD^", help="a commit")
    parser.add_argument("--no-spark", action="store_true", help="leave out what starts a JVM")
    arguments = parser.parse_args()
    try:
        with trees(arguments.old) as (old, new, place):
            failed = exchange(old, new, place, CHECKS + (() if arguments.no_spark else WITH_SPARK))
    except subprocess.CalledProcessError as error:
        print(f"exchange: {error.stderr.decode().strip()}", file=sys.stderr)
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
