"""Whether a broker fits among the others of its cluster, before it registers there.

Kafka's controller looks for the listener of its `inter.broker.listener.name` at each broker that registers. If one does
not have it, the controller fails to take in that change of brokers, for all of them: so it must not register. What may
be right, and often is not, is a doubt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.listener import PLAINTEXT
from core.common.endpoint import Endpoint
from core.common.errors import UsageError
from core.zookeeper.znodes import BrokerEndpoint, BrokerNode

_NOBODY = (
    "no other broker is in this cluster. If that is not meant to be so: is the path after ZooKeeper's address right?"
)
_HALF_RACKS = "Kafka's controller makes no topics then, and answers UNKNOWN_SERVER_ERROR"


def ensure_others_reach(config: BrokerConfig, own: Collection[str], others: Mapping[int, BrokerNode]) -> None:
    """Raises UsageError if this broker's listener for brokers is not among its `own`, or none that all `others` have,
    or if it is a guess which of several they use.
    """
    if not others:
        return
    common = set.intersection(*({one.listener.upper() for one in broker.endpoints} for broker in others.values()))
    wanted = config.inter_broker_listener
    is_guess = config.inter_broker_listener_name is None and wanted != PLAINTEXT and len(common) > 1
    if wanted not in own:
        reason = f"it has no listener {wanted} (inter.broker.listener.name)"
    elif wanted not in common:
        reason = f"they have no listener {wanted}"
    elif is_guess:
        reason = "inter.broker.listener.name does not say which listener they use"
    else:
        return
    known = "; ".join(f"broker {node_id} has {', '.join(map(str, one.endpoints))}" for node_id, one in others.items())
    name = common.pop() if len(common) == 1 else "NAME"
    raise UsageError(
        f"the cluster's other brokers could not reach this one: {reason}; {known}",
        hint=f"--listener {name}://HOST:PORT --set inter.broker.listener.name={name}, as the others have it",
    )


def find_doubts(own: BrokerNode, others: Mapping[int, BrokerNode]) -> list[str]:
    """Says in a line each what is likely to be a mistake of whoever starts this broker."""
    if not others:
        return [_NOBODY]
    doubts = []
    near = [str(one) for one in own.endpoints if _is_loopback(one)]
    if near and any(not _is_loopback(one) for broker in others.values() for one in broker.endpoints):
        doubts.append(
            f"the cluster is told that this broker is at {', '.join(near)}, which only this machine can reach: name "
            "another address with --listen or --advertise"
        )
    with_rack = [str(node_id) for node_id, broker in others.items() if broker.rack is not None]
    if own.rack is None and with_rack:
        doubts.append(f"this broker has no --rack, and brokers {', '.join(with_rack)} have one: {_HALF_RACKS}")
    elif own.rack is not None and len(with_rack) < len(others):
        without = ", ".join(str(node_id) for node_id, broker in others.items() if broker.rack is None)
        doubts.append(f"this broker has a rack, and brokers {without} have none: {_HALF_RACKS}")
    return doubts


def _is_loopback(endpoint: BrokerEndpoint) -> bool:
    return Endpoint(endpoint.host, endpoint.port).is_loopback
