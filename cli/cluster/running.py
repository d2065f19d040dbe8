"""What `plog cluster start` does while the cluster lives: it says what becomes of it, and stops it at a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cli.options import say
from cli.stop_signals import STOP_SIGNALS, leave_terminal
from core.common.filesystem import FileSystem
from core.common.printable import printable

if TYPE_CHECKING:
    from types import FrameType

    from core.processes.broker_process import BrokerProcess
    from core.processes.local_cluster import LocalCluster

_POLL_SECONDS = 0.1


def run_cluster(cluster: LocalCluster, ready_file: Path | None, *, is_temporary: bool) -> int:
    """Runs it to its end, and gives the exit code: 3 if a process of it has ended by itself. Raises what
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
    except KeyboardInterrupt:  # before it was ready; a second signal ends what is left, and this command goes on
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
    """Returns when it is to be stopped, or no broker is left; says meanwhile which processes have ended. Gives the exit
    code.
    """
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
    """Lets the first signal stop the cluster, and the second end it at once. Gives a list of those that came."""
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
        if received:
            cluster.kill()
        received.append(number)

    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` starts it
            signal.signal(number, stop)
    return received


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
    """What comes to a file after it was made; owned by one thread at a time."""

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
