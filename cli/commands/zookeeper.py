"""`plog zookeeper start`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.options import parse_settings
from cli.plog_command import command, new_app
from cli.security_options import level_of
from cli.stop_signals import collect_stop_signals
from cli.terminal import say
from core.common.command_option import REQUIRED, option, options
from core.common.errors import AccessError, UsageError

if TYPE_CHECKING:
    from core.processes.zookeeper_process import ZooKeeperProcess

_OF_OPTIONS = {"dataDir": "--data-dir", "clientPort": "--listen", "clientPortAddress": "--listen"}

app = new_app(
    "Run Apache ZooKeeper, for clusters of Kafka brokers that need one.",
    "plog zookeeper start --listen 127.0.0.1:2181 --data-dir ./zookeeper",
)


@app.callback()
def zookeeper() -> None:
    """Run Apache ZooKeeper, for clusters of Kafka brokers that need one."""


def _refuse_brokers(context: Any, parameter: Any, value: Any) -> Any:
    """A callback: the default of config.toml for every command is the directory of a broker's logs."""
    if level_of(context, parameter.name) > 1 and str(getattr(parameter, "config_section", "")).endswith("default"):
        raise UsageError(
            f"--data-dir is needed: [{parameter.config_section}] of config.toml names a broker's directory",
            hint="ZooKeeper needs a folder of its own: --data-dir ./zookeeper, or data-dir in [zookeeper.start]",
        )
    return value


@command(app, "plog zookeeper start --listen 127.0.0.1:2181 --data-dir ./zookeeper")
def start(
    data_dir: Path = option(
        "The folder for ZooKeeper's own data, and for its log.",
        default=REQUIRED,
        metavar="DIR",
        callback=_refuse_brokers,
    ),
    listen: str = option("Where to listen; port 0 takes a free one.", default="127.0.0.1:2181", metavar="HOST:PORT"),
    settings: list[str] | None = options(
        "A setting of ZooKeeper's, such as tickTime=500.", "--set", metavar="KEY=VALUE"
    ),
) -> None:
    """Run one ZooKeeper server until it is stopped.

    When brokers may connect, it prints one line, `ready HOST:PORT ...`. SIGTERM, SIGHUP or Ctrl-C stops it cleanly. It
    needs the extra plog-kafka[spark], because ZooKeeper comes with PySpark.
    """
    from core.common.endpoint import parse_endpoint
    from core.processes.process_group import ProcessGroup
    from core.processes.zookeeper_process import ZooKeeperProcess

    where = parse_endpoint(listen, 2181)
    own = _checked(parse_settings(settings or ()))
    with ProcessGroup() as group:
        server = ZooKeeperProcess(data_dir, where, group=group, settings=own)
        try:
            server.start()
            was_stopped = collect_stop_signals(
                lambda before: server.signal(signal.SIGKILL if before else signal.SIGTERM)
            )
            if not where.is_loopback:
                say(
                    f"warning: on {where} without authentication: anybody who reaches this address may change "
                    "the whole cluster"
                )
            _run(server, was_stopped)
        finally:
            server.stop()


def _checked(settings: dict[str, str]) -> dict[str, str]:
    """Raises UsageError for a setting that has an option of its own."""
    for name in settings:
        if (option := _OF_OPTIONS.get(name)) is not None:
            raise UsageError(f"--set {name}: {option} sets that", hint=f"use {option} instead")
    return settings


def _run(server: ZooKeeperProcess, was_stopped: list[int]) -> None:
    try:
        server.wait_until_ready()
        print(f"ready {server.endpoint} data {server.directory} pid {os.getpid()}", flush=True)
        server.wait()
    except AccessError:
        if not was_stopped:
            raise
    if not was_stopped:
        raise server.failure()
