"""Apache ZooKeeper as a separate process, from the jars of PySpark.

The server stands alone, without an ensemble. Its data directory holds, beside ZooKeeper's `version-2`:

    .lock                  held by this process and the server, until both have ended
    zookeeper.properties   ZooKeeper's configuration, written at each start
    log4j2.properties      the configuration of its log
    zookeeper.log          its log; of 10 MB at most, with three older ones

An acknowledged transaction is on the disk: a server that was killed starts again with all of them.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import socket
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import IO

from core.client.net.retry import Retry
from core.common.endpoint import Endpoint
from core.common.errors import AccessError, DirectoryLockedError, UsageError
from core.common.filesystem import FileSystem, access_error, accessing
from core.files.directory_lock import DirectoryLock
from core.files.file_names import META_PROPERTIES, ensure_no_cluster
from core.processes.free_port import ensure_free
from core.processes.process_group import ProcessGroup, ServerProcess
from core.spark.java_home import find_java

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JARS = (
    "zookeeper", "zookeeper-jute", "slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl", "metrics-core",
    "snappy-java", "commons-io", "netty-buffer", "netty-codec-base", "netty-common", "netty-handler", "netty-resolver",
    "netty-transport",
)  # fmt: skip
"""The jars that it needs of PySpark's 300, by name without version."""
_JAVA_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")

_SETTINGS = {
    "tickTime": "2000",
    "admin.enableServer": "false",
    "maxClientCnxns": "0",
    "autopurge.snapRetainCount": "3",
    "autopurge.purgeInterval": "24",
    "4lw.commands.whitelist": "srvr,stat,ruok,mntr",
}
"""ZooKeeper's own names. Brokers on one machine share an address, so connections are not counted."""

_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:plog.zookeeper.log}
appender.file.filePattern = ${sys:plog.zookeeper.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %m (%c{1})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""

_EXCEPTION = re.compile(r"[\w.$]+(?:Exception|Error): (.*)")
_CAUSE = "Caused by: "
_PACKAGE = re.compile(r"^(\w+\.)+")
_LOGGER = re.compile(r" \(\w+\)$")

_LOOK_SECONDS = 0.05
_ASK_SECONDS = 2.0
_LOCK_SECONDS = 10.0
_STOP_SECONDS = 10.0


class ZooKeeperProcess(ServerProcess):
    """Started by `start`; ends by `stop`, by itself, or with its group. Owned by one thread."""

    def __init__(
        self,
        directory: Path,
        listen: Endpoint,
        *,
        group: ProcessGroup,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """`settings` are ZooKeeper's own, and override ours."""
        super().__init__("ZooKeeper", directory.absolute(), directory.absolute() / "zookeeper.log", group)
        self.endpoint = listen
        self._own_settings = settings or {}
        self._java_options = java_options
        self._lock: DirectoryLock | None = None
        self._stderr: IO[bytes] | None = None

    def start(self) -> None:
        """Starts the server, and sets the port of `endpoint`. Raises AccessError if Java or PySpark is missing, the
        port is taken or another process has the directory, and UsageError for the directory of a broker or of a whole
        cluster.
        """
        jars = find_jars()
        java = find_java(os.environ, "ZooKeeper")
        self._prepare_directory()
        self._lock = DirectoryLock(self.directory)
        try:
            self._lock.acquire(_LOCK_SECONDS)
        except DirectoryLockedError as error:
            error.hint = "another ZooKeeper works in this directory: stop it, or use another --data-dir"
            raise
        self.endpoint = ensure_free(self.endpoint)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._write_files()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `_release`
        command = [
            str(java),
            *_JAVA_OPTIONS,
            *self._java_options,
            f"-Dlog4j2.configurationFile={(self.directory / 'log4j2.properties').as_uri()}",
            f"-Dplog.zookeeper.log={self.log}",
            "-cp",
            os.pathsep.join(map(str, jars)),
            _MAIN_CLASS,
            str(self.directory / "zookeeper.properties"),
        ]
        self._process = self._group.start(command, output=self._stderr, keeps=[self._lock.descriptor])

    def wait_until_ready(self) -> None:
        """Returns when the server answers. Raises AccessError if it ends instead."""
        waiting = Retry(math.inf, most_s=_LOOK_SECONDS)  # the server does not report that it is ready
        while not self._answers():
            if not self.is_running:
                raise self.failure()
            waiting.wait()

    @property
    def command(self) -> str:
        """The command that starts the server again by hand, with its own settings."""
        where = ["--data-dir", str(self.directory), "--listen", str(self.endpoint)]
        settings = [word for name, value in self._own_settings.items() for word in ("--set", f"{name}={value}")]
        return shlex.join(["plog", "zookeeper", "start", *where, *settings])

    def stop(self) -> None:
        """Stops the server, and kills it if that takes long; returns when it has ended. No acknowledged transaction is
        lost.
        """
        self._end(_STOP_SECONDS)
        if self._stderr is not None:
            self._stderr.close()
        if self._lock is not None:
            self._lock.release()

    def _reason(self) -> str:
        assert self._stderr is not None
        self._stderr.seek(0)
        output = self._stderr.read().decode(errors="replace")
        return _last_error(output) or _last_error(self._tail_of_log())

    def _prepare_directory(self) -> None:
        ensure_no_cluster(self.directory)
        if (self.directory / META_PROPERTIES).exists():
            raise UsageError(
                f"{self.directory} is a broker's data directory", hint="give ZooKeeper a --data-dir of its own"
            )
        with accessing(self.directory, "make"):
            FileSystem().make_data_directory(self.directory)

    def _write_files(self) -> None:
        settings = {
            "dataDir": str(self.directory),
            "clientPort": str(self.endpoint.port),
            "clientPortAddress": self.endpoint.host or "0.0.0.0",  # noqa: S104 - what --listen :PORT asks for
            **_SETTINGS,
            **self._own_settings,
        }
        text = "# Written by each start.\n" + "".join(
            f"{_as_property(key)}={_as_property(value)}\n" for key, value in settings.items()
        )
        for name, content in (("zookeeper.properties", text), ("log4j2.properties", _LOGGING)):
            try:
                FileSystem().write_atomic(self.directory / name, content.encode("ascii"))
            except OSError as error:
                raise access_error(error, self.directory / name, "write") from error

    def _answers(self) -> bool:
        """Whether it serves: it listens before that."""
        host = "127.0.0.1" if self.endpoint.is_wildcard else self.endpoint.host
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, self.endpoint.port), _ASK_SECONDS) as connection,
        ):
            connection.sendall(b"srvr")
            return b"Mode: " in b"".join(iter(lambda: connection.recv(4096), b""))
        return False


def find_jars() -> list[Path]:
    """Finds ZooKeeper among PySpark's jars. Raises AccessError if it is missing."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise AccessError(
            "ZooKeeper comes with PySpark, which is not installed", hint="pip install 'plog-kafka[spark]'"
        )
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    jars = [jar for name in _JARS for jar in sorted(folder.glob(f"{name}-[0-9]*.jar"))]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise AccessError(
            f"there is no ZooKeeper in {folder}",
            where=str(folder),
            hint="pip install --upgrade 'plog-kafka[spark]', or use a ZooKeeper of your own",
        )
    return jars


def _as_property(text: str) -> str:
    """Escapes a key or a value for java.util.Properties."""
    plain = "".join(f"\\{c}" if c in "\\:=#! " else c for c in text)
    units = plain.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)


def _last_error(text: str) -> str:
    """Finds the line with the reason: the last ERROR of the log, with its exception, or Java's message if there is no
    log yet.
    """
    lines = text.splitlines()
    found = ""
    for number, line in enumerate(lines, start=1):
        _, is_error, message = line.partition(" ERROR ")
        if is_error and not message.startswith("Exiting JVM"):
            reason = _reason_in(lines[number:])
            found = _LOGGER.sub("", message) + (f": {reason}" if reason else "")
    return found or next((line for line in lines if line.startswith(("Error", "Exception", "Unrecognized"))), "")


def _reason_in(lines: Sequence[str]) -> str:
    """Returns the message of the exception whose trace is at the start of the lines, or of its innermost cause; "" if
    there is no trace.
    """
    exception = _EXCEPTION.match(lines[0]) if lines else None
    reason = exception[1] if exception else ""
    for line in takewhile(lambda line: line.startswith(("\t", _CAUSE)), lines[1:] if exception else ()):
        if line.startswith(_CAUSE):
            reason = _PACKAGE.sub("", line.removeprefix(_CAUSE))
    return reason
