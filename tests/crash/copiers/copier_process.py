"""A copier in a process of its own: of librdkafka, of franz-go, or of Kafka Streams."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.interop.test_other_languages import go_client
from tests.support.class_archives import quick_options
from tests.support.oracle import fetch_jars, fetched_libs
from tests.support.waiting import wait_for_exit

SOURCE = "streams-plaintext-input"
"""The topic that all copy: as Kafka's example of Streams is called to read."""
COUNTS = "streams-wordcount-output"
"""Where it counts the words."""
_SUPPORT = Path(__file__).parents[2] / "support"
_LOGGING = _SUPPORT / "kafka" / "log4j2.properties"
_DEBUG = "PLOG_COPIERS_DEBUG"
"""What librdkafka's copiers tell of themselves; the others tell all if it is set."""


class CopierProcess:
    """Owned by one thread. `log` has what it says."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, good_codes: Sequence[int] = (0,)) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._good_codes = good_codes
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def stop(self) -> None:
        """Asks it to come to an end; AssertionError if it does not, or fails."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = wait_for_exit(self._process)
        assert code in self._good_codes, f"{self.name} ends with {code}: {self.last_words()}"

    def kill(self) -> None:
        """Ends it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask_where_it_is(self) -> None:
        """Its threads say so in the log, if it is Python's or Java's."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT if self._command[0] == "java" else signal.SIGUSR1)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def begun_again(self) -> int:
        """How often it has made its clients again."""
        return self.log.read_text(errors="replace").count(" made again after ")


def librdkafkas(kind: str, name: str, address: str, target: str, folder: Path) -> CopierProcess:
    """`transactional` or `idempotent`."""
    program = [sys.executable, "-m", "tests.crash.copiers.librdkafka_copier"]
    return CopierProcess(name, [*program, kind, name, address, SOURCE, target], folder / f"{name}.log")


def franz_gos(name: str, address: str, target: str, folder: Path) -> CopierProcess:
    return CopierProcess(name, [*go_client(), "copy", address, SOURCE, target, name], folder / f"{name}.log")


def streams_counter(name: str, address: str, folder: Path) -> CopierProcess:
    """An instance of Kafka's example, which counts words exactly once; `name` is another one for each."""
    jars = fetch_jars(_SUPPORT / "streams" / "pom.xml", "streams")
    loggers = [path for path in fetched_libs().glob("log4j-*.jar") if "1.2-api" not in path.name]
    properties = folder / f"{name}.properties"
    properties.write_text(
        f"bootstrap.servers={address}\nstate.dir={folder / name}\nprocessing.guarantee=exactly_once_v2\n"
        "commit.interval.ms=200\nrequest.timeout.ms=3000\nretry.backoff.ms=50\nreconnect.backoff.max.ms=500\n"
        "num.standby.replicas=0\nconsumer.session.timeout.ms=10000\nconsumer.heartbeat.interval.ms=500\n"
        "producer.transaction.timeout.ms=20000\nproducer.delivery.timeout.ms=30000\nproducer.linger.ms=5\n"
        "metadata.max.age.ms=5000\nreplication.factor=3\n"
    )
    command: list[str | Path] = [
        "java", "-Xmx256M", *quick_options(), f"-Dlog4j2.configurationFile=file:{_LOGGING}",
        f"-Dplog.log.level={'debug' if os.environ.get(_DEBUG) else 'warn'}",
        "-cp", ":".join([f"{jars}/*", *map(str, loggers)]),
        "org.apache.kafka.streams.examples.wordcount.WordCountDemo", properties,
    ]  # fmt: skip
    return CopierProcess(name, command, folder / f"{name}.log", good_codes=(128 + signal.SIGTERM,))
