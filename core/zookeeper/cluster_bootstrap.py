"""Prepares ZooKeeper for a process that is about to start the brokers of a cluster.

Registrations of dead brokers are removed before their sessions end. ZooKeeper keeps a broker that was killed until its
session ends, and until then it may not register again; the process that started it, and saw it end, knows better. A new
cluster gets its path and its first features.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from core.zookeeper.znodes import BROKER_IDS, CONTROLLER, FEATURE, FeatureNode, broker_path, decode_controller
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Create, Delete, Operation, Refusal, ZooKeeperError


async def remove_registrations(session: ZooKeeperSession, broker_ids: Collection[int]) -> None:
    """Removes the registrations of these brokers, which all are dead, and /controller if it belongs to one of them."""
    gone = [Delete(broker_path(broker_id)) for broker_id in broker_ids]
    controller = await session.read(CONTROLLER) if gone else None
    if controller is not None and decode_controller(controller.data).broker_id in broker_ids:
        gone.append(Delete(CONTROLLER, controller.stat.version))
    for one in gone:
        await _commit(session, one, {Refusal.NO_NODE})


async def finalize_features(session: ZooKeeperSession, levels: Mapping[str, int]) -> bool:
    """Writes the features of a new cluster. Returns False if there is a cluster, which keeps its own."""
    if await session.read(BROKER_IDS) is not None:
        return False
    return await _commit(session, Create(FEATURE, FeatureNode(levels).encode()), {Refusal.NODE_EXISTS})


async def _commit(session: ZooKeeperSession, change: Operation, expected: Collection[Refusal]) -> bool:
    """Returns whether the change was made, and not refused as expected."""
    try:
        await session.commit([change])
    except ZooKeeperError as error:
        if error.refusal not in expected:
            raise
        return False
    return True
