"""`plog cluster controller`: the controller, its epoch, and the positions of the nodes that could follow it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.data_location import Place, ReadPlace
from cli.output import OUTPUT, Listing, OutputFormat, Row
from cli.terminal import say
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.protocol.schema.cluster_nodes import DescribedPartition, ReplicaState

_NODES = Listing(
    "node role end_offset lag last_fetch_timestamp last_caught_up_timestamp",
    further="controller epoch high_watermark",
    drops="last_fetch_timestamp last_caught_up_timestamp end_offset",
)
_NODES_WITHOUT_QUORUM = Listing(
    "node role",
    further="end_offset lag last_fetch_timestamp last_caught_up_timestamp controller epoch high_watermark",
)
_TERMS = Listing("controller epoch since_timestamp offset", drops="offset")
_TIMEOUT_SECONDS = 10.0


def controller(output: OutputFormat = OUTPUT, place: ReadPlace = Place()) -> None:
    """Show which node is the controller, its epoch, and how far the other nodes follow its metadata log.

    For a directory that no broker serves it lists the controllers of the past, as far as its metadata log goes back.
    The exit code is 1 if no controller is known.
    """
    from core.client.net.kafka_client import KafkaClient

    with place.session().open_source() as source:
        code = _of_cluster(source, output) if isinstance(source, KafkaClient) else _of_files(source.directory, output)
    raise typer.Exit(code)


def _of_cluster(client: KafkaClient, output: OutputFormat) -> int:
    from core.client.admin.metadata_quorum import find_quorum

    try:
        quorum = find_quorum(client, timeout_s=_TIMEOUT_SECONDS)
    except ConnectionFailedError:
        say("error: the broker asked the controller, and no controller answers it")
        return 1
    if not isinstance(quorum, ErrorCode):
        return _of_quorum(quorum, output)
    client.refresh([])
    is_known = client.controller_id >= 0
    say(f"controller {client.controller_id}" if is_known else "error: no controller is known")
    if quorum is ErrorCode.UNSUPPORTED_VERSION:
        say(
            "note: brokers don't tell the controller's epoch, or since when it is in office; in ZooKeeper "
            "/controller and /controller_epoch do. Any broker may be the next controller"
        )
    else:
        say(f"note: the quorum could not be asked for: {quorum.name}. In KRaft the broker named here may be any broker")
    rows: list[Row] = [{"node": node, "role": _role(client, node)} for node in sorted(client.node_ids)]
    controller_id = client.controller_id if is_known else None
    _NODES_WITHOUT_QUORUM.write([{**row, "controller": controller_id} for row in rows], output)
    return 0 if is_known else 1


def _role(client: KafkaClient, node: int) -> str:
    return "controller" if node == client.controller_id else "broker"


def _of_quorum(quorum: DescribedPartition, output: OutputFormat) -> int:
    is_known = quorum.leader_id >= 0
    named = f"controller {quorum.leader_id}" if is_known else "error: no controller is elected"
    say(f"{named}, epoch {quorum.leader_epoch}, high watermark {quorum.high_watermark}")
    nodes = [*quorum.current_voters, *quorum.observers]
    end = max((node.log_end_offset for node in nodes if node.replica_id == quorum.leader_id), default=None)
    of_quorum = {
        "controller": quorum.leader_id if is_known else None,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
    }
    rows = [{**_node_row(node, quorum, end), **of_quorum} for node in nodes]
    _NODES.write(rows, output)
    return 0 if is_known else 1


def _node_row(node: ReplicaState, quorum: DescribedPartition, end: int | None) -> Row:
    role = "voter" if node in quorum.current_voters else "observer"
    return {
        "node": node.replica_id,
        "role": "controller" if node.replica_id == quorum.leader_id else role,
        "end_offset": node.log_end_offset,
        "lag": None if end is None else max(end - node.log_end_offset, 0),
        "last_fetch_timestamp": node.last_fetch_timestamp if node.last_fetch_timestamp >= 0 else None,
        "last_caught_up_timestamp": node.last_caught_up_timestamp if node.last_caught_up_timestamp >= 0 else None,
    }


def _of_files(directory: Path, output: OutputFormat) -> int:
    from core.cluster.description.directory_cluster import read_controller_history

    terms = read_controller_history(directory)
    if terms is None:
        say(f"error: {directory} has no metadata log, which only nodes of KRaft have: no controller is known")
    else:
        say("no broker serves the directory: this is what its metadata log says")
    rows: list[Row] = [
        {"controller": term.controller_id, "epoch": term.epoch, "since_timestamp": term.since_ms, "offset": term.offset}
        for term in terms or ()
    ]
    _TERMS.write(rows, output)
    return 0 if rows else 1
