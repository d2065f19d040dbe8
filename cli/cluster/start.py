"""`plog cluster start`: the options of a whole cluster, and the checks before it starts.

While the cluster lives, the command reports events; at a signal it stops the cluster.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cli.logging import LogFormat
from cli.options import parse_settings
from cli.security_options import level_of
from cli.stop_signals import collect_stop_signals
from cli.terminal import say
from core.common.command_option import flag, option, options
from core.common.errors import PlogError, UsageError
from core.common.filesystem import FileSystem
from core.common.printable import printable

if TYPE_CHECKING:
    from core.processes.broker_process import BrokerProcess
    from core.processes.local_cluster import LocalCluster


_POLL_SECONDS = 0.1


def run_cluster(cluster: LocalCluster, ready_file: Path | None, *, is_temporary: bool) -> int:
    """Runs it to its end, and returns the exit code: 3 if one of its processes has ended by itself. Raises what
    `LocalCluster.start` raises.
    """
    where = cluster.directory.path
    logs = " ".join(broker.log.name for broker in cluster.brokers.values())
    say(f"the logs are in {where}: {logs}" + (" zookeeper/zookeeper.log" if cluster.zookeeper else ""))
    if is_temporary:
        say("that directory is deleted at the end, with all records; --data-dir keeps them")
    try:
        cluster.start(_say_ready)
        stopped = _stop_at_signals(cluster)
        _say_all_ready(cluster, ready_file)
        code = _watch(cluster, stopped)
    except KeyboardInterrupt:  # before it was ready; a second signal ends the rest, and this command goes on
        _stop_at_signals(cluster).append(signal.SIGINT)
        raise
    finally:
        say("stopping the cluster ..")
        for node_id in cluster.stop():
            say(f"warning: broker {node_id} did not stop in time, and was killed: its next start checks its logs")
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
    return code


def _say_ready(broker: BrokerProcess) -> None:
    print(f"broker {broker.node_id} {broker.endpoint} pid {broker.pid} log {broker.log}", flush=True)
    if not broker.endpoint.is_loopback:
        say(
            f"warning: on {broker.endpoint} without authentication: everybody who reaches this address may read, write "
            "and delete everything"
        )


def _say_all_ready(cluster: LocalCluster, ready_file: Path | None) -> None:
    servers = cluster.bootstrap_servers
    if ready_file is not None:
        FileSystem().write_atomic(ready_file.absolute(), f"{servers}\n".encode(), sync=False)
    if (server := cluster.zookeeper) is not None:
        print(f"zookeeper {server.endpoint} pid {server.pid} log {server.log}")
    print(f"ready {servers} pid {os.getpid()} data {cluster.directory.path} zookeeper {cluster.connect}", flush=True)
    replicas = min(3, len(cluster.brokers))
    say(
        f"hint: plog topic create letters --partitions 3 --replication-factor {replicas} "
        f"--bootstrap-server {servers.partition(',')[0]}"
    )
    say(f"hint: Ctrl-C, or kill {os.getpid()}, stops the cluster")


def _watch(cluster: LocalCluster, stopped: list[int]) -> int:
    """Returns the exit code at a signal, or when no broker is left; reports meanwhile which processes have ended."""
    code = 0
    while not stopped:
        running = cluster.running()
        for loss in cluster.find_losses():
            say(f"error: {loss.message}; {'the others go on' if running else 'no broker is left'}")
            say(f"hint: {loss.hint}")
            code = loss.exit_code
        if not running:
            break
        time.sleep(_POLL_SECONDS)
    return code


def _stop_at_signals(cluster: LocalCluster) -> list[int]:
    """Lets the first signal stop the cluster, and the second end it at once. Returns the list of received signals."""
    return collect_stop_signals(lambda before: cluster.kill() if before else None)


# --- what the brokers log


@contextlib.contextmanager
def shown_logs(cluster: LocalCluster) -> Iterator[None]:
    """Prints what the brokers log to stderr, as it comes."""
    tails = [_LogTail(f"broker {node_id} | ", broker.log) for node_id, broker in cluster.brokers.items()]
    is_over = threading.Event()

    def follow() -> None:
        while not is_over.wait(_POLL_SECONDS):
            for tail in tails:
                tail.show()

    thread = threading.Thread(target=follow, name="plog-logs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        for tail in tails:
            tail.show()


class _LogTail:
    """New contents of a file; owned by one thread at a time."""

    def __init__(self, prefix: str, path: Path) -> None:
        self._prefix = prefix
        self._path = path
        self._position = path.stat().st_size if path.exists() else 0

    def show(self) -> None:
        """Prints the lines that have come, as far as they are whole."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")[0]
            self._position += len(whole) + bool(whole)
            for line in whole.decode(errors="replace").splitlines():
                sys.stderr.write(f"{self._prefix}{printable(line)}\n")


_MOST_BROKERS = 16


def _forget_default(context: Any, parameter: Any, value: Any) -> Any:
    """A callback: the default of config.toml for every command is the directory of a single broker."""
    section = str(getattr(parameter, "config_section", ""))
    return None if level_of(context, parameter.name) > 1 and section.endswith("default") else value


def start(
    brokers: int | None = option(
        "How many brokers. Default: as many as the directory has, or 3.", metavar="N", min=1, max=_MOST_BROKERS
    ),
    data_dir: Path | None = option(
        "The folder for the cluster's data and logs. Default: a temporary folder, deleted at the end.",
        metavar="DIR",
        callback=_forget_default,
        show_default=False,
    ),
    listen: str | None = option(
        "The brokers' addresses: one for each, or one for the first broker, the others taking the ports after "
        "it. Port 0 takes free ports. Default: the addresses of before, or 127.0.0.1 from port 9092 on.",
        metavar="HOST:PORT[,..]",
    ),
    zookeeper: str | None = option(
        "Use this ZooKeeper, instead of starting one for the cluster.", metavar="HOST:PORT,..[/CHROOT]"
    ),
    rack: str | None = option("The racks that the brokers are in, one after the other.", metavar="NAME[,..]"),
    feature: list[str] | None = option(
        "Let a new cluster finalize this level, instead of the highest; `none` finalizes no feature, so that "
        "brokers of Kafka 3.9 may join. May be repeated.",
        metavar="FEATURE=LEVEL",
        show_default=False,
        completes="new_level",
    ),
    settings: list[str] | None = options("A setting of every broker.", "--set", metavar="KEY=VALUE"),
    verbose: bool = flag("Show what the brokers log, each line with its broker."),
    log_format: LogFormat = option("The format of log lines.", default=LogFormat.text),
    ready_file: Path | None = option(
        "Write the bootstrap servers to this file once clients may connect.", metavar="FILE"
    ),
) -> None:
    """Run a whole cluster on this machine until it is stopped: ZooKeeper, and brokers of plog's.

    It is for tests and for learning. Each broker prints a line when it is ready; the last line, `ready HOST:PORT,..`,
    has the bootstrap servers. SIGTERM, SIGHUP or Ctrl-C stops all of it cleanly. If one of the brokers dies, the others
    go on, and the exit code is 3 at the end. It needs the extras plog-kafka[cluster,spark].
    """
    from core.processes.local_cluster import ClusterOptions, LocalCluster, parse_listen

    options = ClusterOptions(
        brokers=brokers,
        listen=parse_listen(listen) if listen else (),
        zookeeper=zookeeper,
        racks=_racks(rack),
        features=feature or (),
        settings=_checked(settings or []),
        arguments=("--log-format", log_format.value),
    )
    with (
        _directory(data_dir) as directory,
        LocalCluster(directory, options, note=lambda text: say(f"note: {text}")) as cluster,
        shown_logs(cluster) if verbose else contextlib.nullcontext(),
    ):
        raise typer.Exit(run_cluster(cluster, ready_file, is_temporary=data_dir is None))


@contextlib.contextmanager
def _directory(named: Path | None) -> Iterator[Path]:
    """Yields the cluster's directory; a temporary one is deleted after the block, unless its logs are needed."""
    if named is not None:
        yield named
        return
    temporary = Path(tempfile.mkdtemp(prefix="plog-cluster-"))
    is_needed = False
    try:
        yield temporary
    except (PlogError, typer.Exit) as end:
        is_needed = end.exit_code != 0 and any(temporary.glob("*.log"))
        raise
    finally:
        if is_needed:
            say(f"note: the logs, and all else, are kept in {temporary}")
        else:
            shutil.rmtree(temporary, ignore_errors=True)


def _racks(text: str | None) -> list[str]:
    racks = [one.strip() for one in text.split(",")] if text is not None else []
    if not all(racks):
        raise UsageError(f"--rack {text}: a rack without a name", hint="for example --rack a,b,c")
    return racks


def _checked(given: list[str]) -> dict[str, str]:
    """Returns the settings of every broker. Raises UsageError for settings that each broker has of its own, KafkaError
    for values that a broker would refuse, and reports unknown ones.
    """
    from cli.known_settings import say_unknown
    from core.broker.config.broker_config import BrokerConfig
    from core.processes.local_cluster import SETTINGS_OF_EACH_BROKER

    settings = parse_settings(given)
    for name in settings:
        if name in SETTINGS_OF_EACH_BROKER:
            raise UsageError(f"--set {name}: each broker has its own", hint=SETTINGS_OF_EACH_BROKER[name])
    for name in BrokerConfig.parse(settings).unknown:
        say_unknown(name)
    return settings
