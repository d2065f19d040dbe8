"""`plog cluster start`: the options of a whole cluster, and what is refused before it starts."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.cluster.running import run_cluster, shown_logs
from cli.completion import complete_new_level
from cli.data_location import level_of
from cli.logging import LogFormat
from cli.options import parse_settings, say
from core.common.errors import PlogError, UsageError

_MOST_BROKERS = 16


def _forget_default(context: Any, parameter: Any, value: Any) -> Any:
    """A callback: what config.toml says for every command is the directory of a single broker."""
    section = str(getattr(parameter, "config_section", ""))
    return None if level_of(context, parameter.name) > 1 and section.endswith("default") else value


def start(
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            metavar="N",
            min=1,
            max=_MOST_BROKERS,
            help="How many brokers; as many as the directory has, or 3.",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="The folder for all that the cluster keeps. Without it a temporary one is deleted at the end.",
            callback=_forget_default,
            show_default=False,
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT[,..]",
            help="Where the brokers listen: an address for each, or one from whose port on they do. Port 0 takes free "
            "ones. Without it they listen on 127.0.0.1, from 9092 on, or where they did before.",
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT,..[/CHROOT]",
            help="Use this ZooKeeper, instead of starting one for the cluster.",
        ),
    ] = None,
    rack: Annotated[
        str | None,
        typer.Option("--rack", metavar="NAME[,..]", help="The racks that the brokers are in, one after the other."),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            "--feature",
            metavar="FEATURE=LEVEL",
            help="Have a new cluster finalize this level, and not the highest; `none` finalizes no feature, so that "
            "brokers of Kafka 3.9 may join. May be repeated.",
            autocompletion=complete_new_level,
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of every broker; may be repeated."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show what the brokers log, each line with its broker.")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="The format of log lines.")] = LogFormat.text,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file",
            metavar="FILE",
            help="Write the bootstrap servers to this file once clients may connect.",
        ),
    ] = None,
) -> None:
    """Run a whole cluster on this machine until it is stopped: ZooKeeper, and brokers of plog's.

    It is for tests and for learning. Each broker prints a line when it is ready; the last line, `ready HOST:PORT,..`,
    has the bootstrap servers. SIGTERM, SIGHUP or Ctrl-C stops all of it cleanly. If one of the brokers dies, the others
    go on, and the exit code is 3 at the end. It needs the extras plog-kafka[cluster,spark].

    \b
    Example:
      plog cluster start --brokers 3 --data-dir ./cluster
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
    """Gives where the cluster is; a temporary directory is deleted after the block, unless its logs are needed."""
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
    """Gives the settings of every broker. Raises UsageError for those that each has of its own, KafkaError for values
    that a broker would refuse, and says which it does not know.
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
