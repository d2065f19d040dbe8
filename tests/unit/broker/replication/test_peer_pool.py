"""Connections to the other brokers of a cluster, which are sockets of the test."""

from __future__ import annotations

import asyncio

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.peer_connection import PeerConnection, PeerPool
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.errors import ConnectionFailedError
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.controller_request import ALTER_PARTITION, AlterPartitionRequest
from tests.support.scripted_controller import ScriptedController

PEER = 1
REQUEST = ApiVersionsRequest("test", "1")


def pool_to(endpoints: dict[int, Endpoint]) -> PeerPool:
    """A request is not given up after some time: that would end waits that something else has to end."""
    config = BrokerConfig.parse({"controller.socket.timeout.ms": "3600000"})
    return PeerPool(endpoints.get, config, ReceiveBuffers(), client_id="broker-7-test")


def peer() -> ScriptedController:
    return ScriptedController(lambda _request: None, PEER)


async def test_who_asks_at_once_shares_a_connection() -> None:
    async with peer() as other:
        pool = pool_to(dict([other.find()]))
        await asyncio.gather(*(pool.ask(PEER, API_VERSIONS, 3, REQUEST) for _ in range(3)))
        assert other.connections == 1
        pool.close()


async def test_a_broker_that_has_moved_is_asked_where_it_is_now() -> None:
    async with peer() as before, peer() as now:
        endpoints = dict([before.find()])
        pool = pool_to(endpoints)
        await pool.ask(PEER, API_VERSIONS, 3, REQUEST)
        endpoints.update([now.find()])
        await pool.ask(PEER, API_VERSIONS, 3, REQUEST)
        assert (before.connections, now.connections) == (1, 1)
        del endpoints[PEER]
        with pytest.raises(ConnectionFailedError, match="broker 1 is not known to live"):
            await pool.ask(PEER, API_VERSIONS, 3, REQUEST)


async def test_a_paused_broker_is_waited_for_no_more_once_it_counts_as_gone() -> None:
    async with peer() as other:
        endpoints = dict([other.find()])
        pool = pool_to(endpoints)
        await pool.ask(PEER, API_VERSIONS, 3, REQUEST)
        asking = asyncio.ensure_future(pool.ask(PEER, ALTER_PARTITION, 3, AlterPartitionRequest(7, 1, [])))
        await other.was_asked(1)
        pool.on_brokers_changed()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asking.done()
        del endpoints[PEER]
        pool.on_brokers_changed()
        with pytest.raises(ConnectionFailedError):
            await asking


async def test_a_connection_that_is_made_while_the_pool_is_closed_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    connected, made = asyncio.Event(), []
    connect = PeerConnection.connect

    async def connect_slowly(*where: object, **how: object) -> PeerConnection:
        made.append(await connect(*where, **how))  # type: ignore[arg-type]
        connected.set()
        await asyncio.sleep(0)
        return made[0]

    monkeypatch.setattr(PeerConnection, "connect", connect_slowly)
    async with peer() as other:
        pool = pool_to(dict([other.find()]))
        asking = asyncio.ensure_future(pool.ask(PEER, API_VERSIONS, 3, REQUEST))
        await connected.wait()
        pool.close()
        with pytest.raises(ConnectionFailedError):
            await asking
        assert made[0].is_closed
