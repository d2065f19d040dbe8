"""Starts Spark quietly: its own log and the JVM's go to a file, its UI is off unless the user's settings turn it on,
times are UTC.

The installed PySpark must be able to run plog's jobs and its data source. PySpark does not show the JVM's process until
the JVM has reported its port. If that wait is interrupted, a shell or a JVM stays behind and waits for its caller; so
the start is watched, and no process is left.

plog's packages go along to the nodes of a cluster as one zip; what plog needs besides must be there. NumPy, pyarrow and
the codecs have parts in C, which no zip can carry. Whether they are there is checked first.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.common.decompression_limit import PLOG_MAX_EXPANSION
from core.common.errors import AccessError, PlogError
from core.spark.java_home import java_environment
from core.spark.spark_settings import SparkSettings, settings_file

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


MINIMUM_VERSION = (4, 2)  # the first that hands Arrow batches to a data source's writers, and admission control


def ensure_pyspark() -> None:
    """Raises AccessError if PySpark is missing or too old, or if it lacks a package that it needs."""
    try:
        from pyspark.version import __version__ as version
    except ImportError as error:
        if getattr(error, "name", None) in ("pyspark", "pyspark.version"):
            raise AccessError("spark-replay needs PySpark", hint="pip install 'plog-kafka[spark]'") from None
        raise AccessError(
            f"PySpark is there and can't be used: {error}",
            hint="pip install --upgrade --force-reinstall 'plog-kafka[spark]'",
        ) from error
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < MINIMUM_VERSION:
        expected = ".".join(map(str, MINIMUM_VERSION))
        raise AccessError(
            f"PySpark {version} is too old, expected {expected} or newer",
            hint="pip install --upgrade 'plog-kafka[spark]'",
        )
    if importlib.util.find_spec("pyarrow") is None:
        raise AccessError("spark-replay needs the package pyarrow", hint="pip install 'plog-kafka[spark]'")


_ROOT = Path(__file__).parents[__name__.count(".")]
_PACKAGES = dict.fromkeys((__name__.partition(".")[0], "plog"))
"""In the repository this module is of `core`, installed it is of `plog` (scripts/wheel_layout.py)."""
_ARCHIVE = "plog.zip"
_NEEDED = ("numpy", "pyarrow", "msgspec", "crcmod", "lz4.frame", "snappy", f"{__package__}.replay")


def is_local(master: str) -> bool:
    """Returns whether tasks run in children of this process."""
    return master.split("[")[0] == "local"


def with_retries(master: str) -> str:
    """Makes a local master that tries a task again as a cluster does: Spark's own gives up at the first failure."""
    threads = master.removeprefix("local").strip("[]") or "1"
    return f"local[{threads}{'' if ',' in threads else ',4'}]" if is_local(master) else master


def write_zip(path: Path) -> None:
    """Writes the packages, as they are installed here, with the files that their modules read."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for source in sorted((_ROOT / package).rglob("*")):
                if source.suffix in (".py", ".toml", ".txt"):
                    archive.write(source, source.relative_to(_ROOT))


def send(context: SparkContext) -> None:
    """Sends the packages to the nodes of a cluster, once for each application."""
    from pyspark import SparkFiles

    if any(file.endswith(f"/{_ARCHIVE}") for file in context.listFiles):
        return
    archive = Path(SparkFiles.getRootDirectory()).parent / _ARCHIVE  # nodes fetch it from there, until it ends
    write_zip(archive)
    context.addPyFile(str(archive))


def ship(session: SparkSession) -> None:
    """Raises AccessError if a node lacks what plog needs, or has another Python."""
    context = session.sparkContext
    send(context)
    nodes = max(context.defaultParallelism, 2) * 2
    for host, python, problems in sorted(set(context.parallelize(range(nodes), nodes).mapPartitions(_look).collect())):
        if problems:
            raise AccessError(
                f"node {host} (Python {python}) can't run plog's tasks: {problems}",
                where=host,
                hint="install numpy, pyarrow, msgspec, crcmod, lz4 and python-snappy there, for the Python of "
                "PYSPARK_PYTHON",
            )


def _look(_: Iterable[int]) -> Iterator[tuple[str, str, str]]:
    problems = []
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from running is reported
            problems.append(f"{name}: {error}")
    yield socket.gethostname(), ".".join(map(str, sys.version_info[:3])), "; ".join(problems)


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WATCH_SECONDS = 0.5


class _Launcher(subprocess.Popen[bytes]):
    def poll(self) -> int | None:
        """Never returns 0: PySpark waits for ever after an exit with 0, such as of `spark-submit --version`."""
        code = super().poll()
        return 1 if code == 0 else code


@contextmanager
def killed_if_broken_off(is_hopeless: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Kills the process that PySpark starts in the block, with its children, if an exception ends the block, or as soon
    as `is_hopeless` returns True: PySpark then raises in the block. A thread of its own calls `is_hopeless`. Use it in
    the main thread, which gets the signals that it holds back while the process starts.
    """
    from pyspark import java_gateway

    started: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], *, preexec_fn: Callable[[], None], **how: Any) -> subprocess.Popen[bytes]:
        def prepare() -> None:
            preexec_fn()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)  # until it is known what was started
        try:
            process = _Launcher(command, preexec_fn=prepare, **how)
            started.append(process)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process

    def watch() -> None:
        while not is_over.wait(_WATCH_SECONDS):
            if is_hopeless():
                for process in started:
                    kill(process)
                return

    is_over = threading.Event()
    watcher = threading.Thread(target=watch, name="spark-start", daemon=True)
    watcher.start()
    module: Any = java_gateway  # its `Popen` is not for others, and there is no other way to the process
    popen, module.Popen = module.Popen, start
    try:
        yield
    except BaseException:
        for process in started:
            kill(process)
        raise
    finally:
        module.Popen = popen
        is_over.set()
        watcher.join()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the process, with the shells and the other JVM that start it. They stay in our process group, so killing
    the group kills all of them.
    """
    for pid in (*_descendants(process.pid), process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    """Finds the descendants; none if the system does not list them: they end by themselves a second later."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [found for child in children for found in (*_descendants(child), child)]


_UTC = "-Duser.timezone=UTC"
"""ORC has times by the clock where the JVM runs, not by the session's: one hour a year would be there twice."""

_LIGHT_OPTIONS = " -XX:TieredStopAtLevel=1"
"""Without the second compiler, which takes a third of a start's CPU seconds and is of use to a JVM with work alone."""

_LOOK_SECONDS = 0.2
_CANCEL_SECONDS = 10.0
_DEATH_SECONDS = 1.0
"""How long plog waits for a JVM whose connection broke."""

_MASTER_SECONDS = 25.0
"""How long a cluster may keep silent after a first master did not answer; Spark tries again after 20 s."""

_NO_MASTER = "Failed to connect to master"
_NO_EXECUTORS = "Initial job has not accepted any resources"
_REASONS = (
    r"Application has been killed\. Reason: (.+)$",
    r"ERROR SparkContext: Error initializing SparkContext\.\n(?:[\w.$]+: )?(.+)$",
    r'^Exception in thread "main" (?:[\w.$]+: )?(.+)$',
    r"^Error: (?!Could not create the Java|A fatal)(.+)$",
    r"^(?:: )?(?:[\w$]+\.)+\w*(?:Error|Exception): (.+)$",
)
"""Where Spark's log says why it did not start, the surest first."""

_CAUSE = re.compile(r"\n(?:\s+at .*\n|\s+\.\.\. .*\n)*Caused by: (?:[\w.$]+: )?(.+)")
"""What the frames of an exception end with, if it has a cause: Kubernetes' client says nothing else."""

_NOISE = re.compile(
    r"^\s+at |^\s*\.\.\. \d+ more| WARN |^WARNING: Using incubator|^Error: (Could not create the Java|A fatal)"
    r"|^\[JAVA_GATEWAY_EXITED\]|/spark-class: line "
)
_LAST_LINES = 2

_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "py4j")
"""PySpark's loggers, which print its exceptions in JSON, and the logger of its connection with the JVM."""


def _is_not_of_gateway(record: logging.LogRecord) -> bool:
    """Filters the root logger: py4j's gateway logs there that the JVM went away in the middle of a call."""
    return record.module != "java_gateway"


_LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


@contextmanager
def spark_session(
    settings: SparkSettings,
    scratch: Path,
    tell: Callable[[str], None] = lambda _: None,
    *,
    is_light: bool = False,
) -> Iterator[SparkSession]:
    """Opens a session for the time of the block. `scratch` is a folder for logs and Spark's temporary files. `tell` is
    called with the address of Spark's UI, if it is on, and with the reason why a cluster does not begin. `is_light`: no
    record goes through this JVM, it only starts tasks; so it starts with _LIGHT_OPTIONS.

    Raises AccessError if PySpark or Java is missing or too old, Spark does not start, or a node of the cluster lacks
    what plog's tasks need; `scratch`/spark.log has Spark's messages. Raises PlogError if Spark fails in the block.
    """
    ensure_pyspark()
    log = scratch / "spark.log"
    session = _start(settings, scratch, log, is_light=is_light)
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None  # it prints a traceback when the JVM ends
    if url := session.sparkContext.uiWebUrl:
        tell(f"Spark's UI is at {url}")
    try:
        with explained(session, log):
            if not is_local(settings.master):
                run_interruptibly(session, partial(ship, session), _tell_of_waiting(log, tell))
            yield session
    except KeyboardInterrupt:
        _stop(session, log)
        process = _jvm_of(session)
        if process is not None:
            kill(process)
        raise
    finally:
        _stop(session, log)


@contextmanager
def explained(session: SparkSession, log: Path) -> Iterator[None]:
    """Raises PlogError if Spark fails in the block."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise _jvm_failure(session, log) or _failure(error, log) from error


def _start(settings: SparkSettings, scratch: Path, log: Path, *, is_light: bool) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_gateway)
    scratch.mkdir(parents=True, exist_ok=True)
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J.format(log=log))
    os.environ.update(java_environment(scratch / "java"))
    # Workers start as `python -m ...` in the working directory: what lies there must not stand in for plog's packages.
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = settings.master
    defaults = {
        "spark.app.name": "plog spark-replay",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has no zone
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j} {_UTC}{_LIGHT_OPTIONS * is_light}",
        "spark.executor.defaultJavaOptions": _UTC,
    }
    if is_local(master) or "//127.0.0.1" in master or "//localhost" in master:
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if PLOG_MAX_EXPANSION in os.environ:
        defaults[f"spark.executorEnv.{PLOG_MAX_EXPANSION}"] = os.environ[PLOG_MAX_EXPANSION]
    builder = (
        SparkSession.Builder()
        .master(with_retries(master))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.executorEnv.PYTHONSAFEPATH", "1")
    )
    with _output_to(log):
        on_interrupt = signal.getsignal(signal.SIGINT)
        try:
            with (
                settings_file(scratch / "spark.conf", defaults, settings),
                killed_if_broken_off(_StartWatch(log).is_hopeless),
            ):
                try:
                    return builder.getOrCreate()
                except (PySparkException, Py4JError) as error:
                    _note(error, log)  # while there is a JVM that can be asked for the text
                    raise
        except (PySparkException, Py4JError, OSError, RuntimeError) as error:
            own = type(error).__name__ if isinstance(error, Py4JError) else f"{error}".partition("\n")[0]
            reason = why_not_started(log.read_text(errors="replace")) or own
            raise AccessError(f"Spark did not start: {reason}", where=str(log), hint=f"see {log}") from error
        finally:
            # Without PySpark's own handler, a Ctrl-C ends the command as other signals do.
            if threading.current_thread() is threading.main_thread() and on_interrupt is not None:
                signal.signal(signal.SIGINT, on_interrupt)


def _tell_of_waiting(log: Path, tell: Callable[[str], None]) -> Callable[[], None]:
    """Returns a function that reports, once, that a cluster has no worker to run a job: Spark waits for ever."""
    told: list[str] = []

    def look() -> None:
        found = re.search(rf"({_NO_EXECUTORS}.*)$", log.read_text(errors="replace"), re.MULTILINE)
        if found and not told:
            told.append(found[1])
            tell(f"Spark waits: {found[1]} (see {log})")

    return look


class _StartWatch:
    """Looks whether the masters of a cluster answer: Spark itself tries for more than a minute."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._since_s = 0.0

    def is_hopeless(self) -> bool:
        if _NO_MASTER not in self._log.read_text(errors="replace"):
            return False
        self._since_s = self._since_s or time.monotonic()
        return time.monotonic() - self._since_s > _MASTER_SECONDS


def why_not_started(log: str) -> str:
    """Finds in the output of Spark and its JVM why Spark did not start; "" if there is no output."""
    if masters := re.findall(rf"{_NO_MASTER} (\S+)", log):
        return f"all masters are unresponsive: no connection to {', '.join(dict.fromkeys(masters))}"
    for pattern in _REASONS:
        if found := re.search(pattern, log, re.MULTILINE):
            cause = _CAUSE.match(log, found.end())
            return f"{found[1]} {cause[1]}" if cause else found[1]
    lines = [line.strip() for line in log.splitlines() if line.strip() and not _NOISE.search(line)]
    return "; ".join(lines[-_LAST_LINES:])


def _note(error: Exception, log: Path) -> str:
    text = str(error)
    with log.open("a") as file:
        file.write(f"{text}\n")
    return text


def _stop(session: SparkSession, log: Path) -> None:
    from py4j.protocol import Py4JError

    with _output_to(log), suppress(Py4JError, OSError):  # the JVM may have been killed
        session.stop()


def _jvm_of(session: SparkSession) -> subprocess.Popen[bytes] | None:
    """Returns the JVM's process, or None if it is no child of ours."""
    return getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001 - nothing else knows


def run_interruptibly(session: SparkSession, work: Callable[[], None], look: Callable[[], None] = lambda: None) -> None:
    """Runs the work in a thread of its own, and calls `look` now and then, and at the end, in the caller's thread.
    Ctrl-C cancels Spark's jobs, because a call to the JVM can't be interrupted in another way.
    """
    from py4j.protocol import Py4JError

    failures: list[BaseException] = []

    def run() -> None:
        sessions = type(session)._get_j_spark_session_class(session._jvm)  # noqa: SLF001 - sessions are a thread's own
        sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            failures.append(error)

    thread = threading.Thread(target=run, name="spark-work", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            look()
    except BaseException:  # Ctrl-C, or an error of `look`
        with suppress(Py4JError, OSError):  # the signal may have been for the JVM as well
            session.sparkContext.cancelAllJobs()
        thread.join(_CANCEL_SECONDS)
        raise
    if failures:
        raise failures[0]
    look()


def _jvm_failure(session: SparkSession, log: Path) -> PlogError | None:
    """Explains a JVM that has ended before its job; None while it lives, or if it is no child of ours."""
    process = _jvm_of(session)
    if process is None:
        return None
    try:
        code = process.wait(_DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return AccessError(
        f"Spark's JVM (process {process.pid}) {how} in the middle of the job", where=str(log), hint=f"see {log}"
    )


def _failure(error: Exception, log: Path) -> PlogError:
    """Makes the error that users see for a failed job: plog's own error, if a task raised one."""
    text = _note(error, log)
    errors = PlogError.__module__
    ours = re.findall(rf"^{re.escape(errors)}\.\w+Error: (.+)(?:\n *hint: (.+))?$", text, re.MULTILINE)
    causes = re.findall(r"^(?:Caused by: )?(?:[\w$]+\.)*\w*(?:Error|Exception): (.+)$", text, re.MULTILINE)
    if causes and causes[-1].startswith("An exception was thrown from the Python worker"):  # one without words
        causes += re.findall(r"^(?:\w+\.)*(\w+Error):? *$", text, re.MULTILINE)
    first = (text.splitlines() or [type(error).__name__])[0]
    message, own_hint = ours[-1] if ours else (causes[-1] if causes else first, f"see {log}")
    if "[PACKAGE_NOT_INSTALLED] Pandas" in text:
        return PlogError("the function of --transform needs pandas, and it is not installed", hint="pip install pandas")
    is_damage = f"{errors}.CorruptRecordError: " in text
    damage_hint = "plog verify tells more; --allow-loss goes on after it, in a folder of its own"
    if "No space left on device" in message:
        own_hint = f"free some space where the output is, and where TMPDIR is ({log.parent}); see {log}"
    return PlogError(f"the Spark job failed: {message}", hint=damage_hint if is_damage else own_hint or None)


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Sends the output of processes that are started in the block to the log, for as long as they live."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, fd in enumerate(saved, start=1):
            os.dup2(fd, number)
            os.close(fd)
        os.close(target)
