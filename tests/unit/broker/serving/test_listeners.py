"""A broker with several listeners."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving import socket_server
from core.broker.serving.listener_endpoints import Listener, listener_properties
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.socket_server import SocketServer
from core.common.config_def import ConfigResourceType
from core.common.endpoint import Endpoint
from core.common.errors import AccessError, UsageError
from core.protocol.frame import decode_response, encode_request
from core.protocol.schema.configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from core.protocol.schema.metadata import METADATA, MetadataRequest
from tests.support.broker import SteeredNode, ask, open_broker
from tests.support.for_each import for_each
from tests.support.waiting import PROMPT_SECONDS

NAMED = {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,SECURE:SSL"}


@asynccontextmanager
async def serving(broker: SteeredNode, listeners: Sequence[Listener]) -> AsyncIterator[SocketServer]:
    """A server of the broker; both are closed at the end."""
    runtime = broker.runtime.follow(LoopRuntime(asyncio.get_running_loop(), broker.directory))
    server = SocketServer(broker, runtime, listeners)
    try:
        await server.start()
        yield server
    finally:
        server.close()
        broker.close()


def two(address: str = "127.0.0.1:0") -> list[Listener]:
    return [Listener("INSIDE", "PLAINTEXT", address), Listener("OUTSIDE", "PLAINTEXT", address)]


async def told_brokers(endpoint: Endpoint) -> list[tuple[int, str, int]]:
    """Who a client hears of that connects there."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.write(encode_request(METADATA, 12, 1, "test", MetadataRequest(topics=[])))
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.close()
    _, response = decode_response(METADATA, 12, memoryview(answer))
    return [(broker.node_id, broker.host, broker.port) for broker in response.brokers]


async def test_a_connection_that_lacked_a_descriptor_is_accepted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = socket.socket.accept
    failures = [OSError(errno.EMFILE, "Too many open files")]

    def fail_first(listening: socket.socket) -> tuple[socket.socket, Any]:
        if failures:
            raise failures.pop()
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", fail_first)
    async with serving(open_broker(tmp_path / "data"), two()) as server, asyncio.timeout(PROMPT_SECONDS):
        assert len(await told_brokers(server.endpoints["INSIDE"])) == 1
    assert failures == []


async def test_a_server_keeps_house_though_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(socket_server, "_HOUSEKEEPING_SECONDS", 0)
    broker, done = open_broker(tmp_path / "data"), asyncio.Event()
    refusals = [OSError(errno.ENOSPC, "no space left", "t-0")]

    def step() -> None:
        if refusals:
            raise refusals.pop()
        done.set()

    monkeypatch.setattr(broker.housekeeping, "step", step)
    async with serving(broker, two()), asyncio.timeout(PROMPT_SECONDS):
        await done.wait()
    assert "housekeeping: t-0: no space left" in caplog.text


async def test_each_listener_tells_its_own_address(tmp_path: Path) -> None:
    broker = open_broker(tmp_path / "data")
    async with serving(broker, two()) as server:
        inside, outside = server.endpoints["INSIDE"], server.endpoints["OUTSIDE"]
        assert inside.port != outside.port
        assert server.endpoint == inside
        assert await told_brokers(inside) == [(1, "127.0.0.1", inside.port)]
        assert await told_brokers(outside) == [(1, "127.0.0.1", outside.port)]


async def test_each_listener_tells_what_is_advertised_for_it(tmp_path: Path) -> None:
    """One without an advertised address tells where it is."""
    broker = open_broker(
        tmp_path / "data",
        listeners="INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        advertised_listeners="OUTSIDE://example.com:1234",
        listener_security_protocol_map=NAMED["listener.security.protocol.map"],
    )
    async with serving(broker, two()) as server:
        inside, outside = server.endpoints["INSIDE"], server.endpoints["OUTSIDE"]
        assert await told_brokers(outside) == [(1, "example.com", 1234)]
        assert await told_brokers(inside) == [(1, "127.0.0.1", inside.port)]


async def test_connections_of_all_listeners_count_together(tmp_path: Path) -> None:
    broker = open_broker(tmp_path / "data", max_connections="1")
    async with serving(broker, two()) as server:
        first = await asyncio.open_connection("127.0.0.1", server.endpoints["INSIDE"].port)
        while not server.open_connections:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(told_brokers(server.endpoints["OUTSIDE"]))
        while not server._is_full:
            await asyncio.sleep(0)
        assert server.open_connections == 1
        assert not second.done()
        first[1].close()
        assert len(await second) == 1


async def test_a_server_that_stops_listens_nowhere(tmp_path: Path) -> None:
    broker = open_broker(tmp_path / "data")
    async with serving(broker, two()) as server:
        server.close()
        for endpoint in server.endpoints.values():
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((endpoint.host, endpoint.port))


async def test_an_address_that_is_taken_leaves_the_others_free(tmp_path: Path) -> None:
    broker = open_broker(tmp_path / "data")
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as free:
        taken, first = other.getsockname()[1], free.getsockname()[1]
        free.close()
        listeners = [Listener("INSIDE", "PLAINTEXT", f"127.0.0.1:{first}"), *two(f"127.0.0.1:{taken}")[1:]]
        with pytest.raises(AccessError, match=f"could not listen on 127.0.0.1:{taken}") as caught:
            await serving(broker, listeners).__aenter__()
        assert "another port for OUTSIDE, in listeners or with a --listener" in str(caught.value.hint)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", first))


def test_configs_tell_where_it_listens(tmp_path: Path) -> None:
    broker = open_broker(tmp_path / "data")
    inside, outside = Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 2)
    broker.begin_serving(inside, {"INSIDE": inside, "OUTSIDE": outside})
    wanted = DescribeConfigsResource(ConfigResourceType.BROKER, "1", ["listeners", "advertised.listeners"])
    (result,) = ask(broker, DESCRIBE_CONFIGS, DescribeConfigsRequest([wanted])).results
    expected = "INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2"
    assert {one.name: one.value for one in result.configs} == dict.fromkeys(wanted.configuration_keys or (), expected)


def parse(**settings: str) -> BrokerConfig:
    return BrokerConfig.parse(NAMED | {name.replace("_", "."): text for name, text in settings.items()})


def test_those_of_controllers_are_not_served() -> None:
    config = parse(listeners="SECURE://:1,OUTSIDE://:2,inside://:3", controller_listener_names="outside")
    assert [str(one) for one in config.served_listeners] == ["SECURE://:1", "INSIDE://:3"]
    assert [one.protocol for one in config.served_listeners] == ["SSL", "PLAINTEXT"]
    assert config.main_listener == "SECURE"
    assert str(config.main_listener_at(Endpoint("h", 5))) == "SECURE://h:5"


@for_each(
    "settings, name",
    [
        ({"listeners": "SSL://:1,PLAINTEXT://:2", "listener_security_protocol_map": "SSL:SSL,PLAINTEXT:PLAINTEXT"},
         "PLAINTEXT"),
        ({"listeners": "SECURE://:1,INSIDE://:2"}, "INSIDE"),
        ({"listeners": "SECURE://:1,SSL://:2", "listener_security_protocol_map": "SECURE:SSL,SSL:SSL"}, "SECURE"),
        ({"listeners": "INSIDE://:1,SECURE://:2", "security_inter_broker_protocol": "SSL"}, "SECURE"),
        ({"listeners": "INSIDE://:1,SECURE://:2", "inter_broker_listener_name": "secure"}, "SECURE"),
        ({"listeners": "SECURE://:1,INSIDE://:2", "inter_broker_listener_name": "secure"}, "SECURE"),
    ],
)  # fmt: skip
def test_the_listener_of_the_other_brokers(settings: dict[str, str], name: str) -> None:
    config = parse(**settings)
    config.ensure_listeners_fit()
    assert config.inter_broker_listener == name


def test_a_single_listener_may_be_advertised_by_another_name_of_its_protocol() -> None:
    config = parse(listeners="SECURE://:1", advertised_listeners="INSIDE://in:1,OTHER://out:2")
    assert config.find_advertised("SECURE") is None
    settings = {"listener.security.protocol.map": "SECURE:SSL,OTHER:SSL", "listeners": "SECURE://:1"}
    config = BrokerConfig.parse(settings | {"advertised.listeners": "PLAINTEXT://in:1,OTHER://out:2"})
    assert config.find_advertised("SECURE") == Endpoint("out", 2)


@for_each(
    "settings, message",
    [
        ({"listeners": "INSIDE://:1,inside://:2"}, "each listener needs a name of its own, and INSIDE is there twice"),
        (
            {"listeners": "INSIDE://:1,OUTSIDE://:2", "advertised_listeners": "OTHER://h:3"},
            "advertised.listeners has OTHER://h:3, and the listeners are INSIDE, OUTSIDE",
        ),
        (
            {"listeners": "INSIDE://:1,OUTSIDE://:2", "inter_broker_listener_name": "Other"},
            "inter.broker.listener.name is Other, and the listeners are INSIDE, OUTSIDE",
        ),
        (
            {"listeners": "INSIDE://:1", "inter_broker_listener_name": "OUTSIDE"},
            "inter.broker.listener.name is OUTSIDE, and the listeners are INSIDE",
        ),
        (
            {"inter_broker_listener_name": "OUTSIDE", "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT"},
            "inter.broker.listener.name is OUTSIDE, and the listeners are PL",
        ),
        (
            {
                "listeners": "INSIDE://:1",
                "inter_broker_listener_name": "INSIDE",
                "security_inter_broker_protocol": "PLAINTEXT",
            },
            "inter.broker.listener.name and security.inter.broker.protocol are both set",
        ),
    ],
)
def test_listeners_that_can_not_be(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(**settings).ensure_listeners_fit()


@for_each(
    "protocols, others, message",
    [
        ("PLAINTEXT:SSL", "", "listener.security.protocol.map has PLAINTEXT:SSL, and listeners is not set"),
        ("PLAINTEXT:SASL_SSL", "CONTROLLER://:9", "has PLAINTEXT:SASL_SSL, and listeners is not set"),
        ("OUTSIDE:SASL_SSL", "", "listener.security.protocol.map has no PLAINTEXT, and listeners is not set"),
        ("CONTROLLER:SSL", "CONTROLLER://:9", None),
        ("PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL", "", None),
    ],
)
def test_the_default_listener_is_not_served_with_less_than_the_map_says(
    protocols: str, others: str, message: str | None
) -> None:
    settings = {"listener.security.protocol.map": protocols, "controller.listener.names": "CONTROLLER"}
    config = BrokerConfig.parse(settings | ({"listeners": others} if others else {}))
    replace(config, ignores_security=True).ensure_listeners_fit()
    if message is None:
        config.ensure_listeners_fit()
        return
    with pytest.raises(UsageError, match=message):
        config.ensure_listeners_fit()


@for_each("name", ["TLS", "SASLSSL", "SASL-SSL", "ssl_ext", "SCRAM"])
def test_a_name_on_the_command_line_that_promises_security_has_a_protocol(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}://:1: listener.security.protocol.map has no {name.upper()}"):
        listener_properties([f"{name}://:1"], "INSIDE:PLAINTEXT")
    assert listener_properties([f"{name}://:1"], f"{name}:SSL") == {"listeners": f"{name}://:1"}


@for_each("one, other", [("h:1", "h:1"), (":1", "127.0.0.1:1"), ("h:1", "0.0.0.0:1"), ("[::1]:1", "[::]:1")])
def test_listeners_with_one_address(one: str, other: str) -> None:
    config = parse(listeners=f"INSIDE://{one},OUTSIDE://{other}")
    config.ensure_listeners_fit()  # --listen may give another address
    with pytest.raises(UsageError, match="each listener needs an address of its own, and OUTSIDE://"):
        config.listeners_or(Endpoint("127.0.0.1", 9))


@for_each("one, other", [("h:1", "h:2"), ("h:0", "h:0"), ("127.0.0.1:1", "[::1]:1"), ("0.0.0.0:1", "[::1]:1")])
def test_listeners_with_an_address_each(one: str, other: str) -> None:
    listeners = parse(listeners=f"INSIDE://{one},OUTSIDE://{other}").listeners_or(Endpoint("127.0.0.1", 9))
    assert [each.address for each in listeners] == [one, other]


def test_listeners_of_the_command_line_are_plaintext_unless_their_names_are_known() -> None:
    texts = ["inside://127.0.0.1:1", "OTHER://:2"]
    assert listener_properties(texts, "INSIDE:SSL") == {
        "listeners": "inside://127.0.0.1:1,OTHER://:2",
        "listener.security.protocol.map": "INSIDE:SSL,OTHER:PLAINTEXT",
    }
    assert listener_properties(["INSIDE://:1"], "INSIDE:SSL") == {"listeners": "INSIDE://:1"}


@for_each("text", ["", "127.0.0.1:9092", "://h:1", "A://h:x", "A://h:1,B://h:2", "A://h:99999"])
def test_what_is_no_listener(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no (NAME://)?HOST:PORT"):
        listener_properties([text], "")


def test_others_are_told_the_name_of_the_host_of_a_listener_on_all_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never `localhost`, where another broker would find itself."""
    monkeypatch.setattr(socket, "getfqdn", lambda: "this.host")
    broker = open_broker(
        tmp_path / "data",
        listeners="INSIDE://127.0.0.1:1,OUTSIDE://:2,THIRD://:3",
        advertised_listeners="OUTSIDE://example.com:0,INSIDE://127.0.0.1:7",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,THIRD:PLAINTEXT",
    )
    inside, outside, third = Endpoint("127.0.0.1", 1), Endpoint("0.0.0.0", 2), Endpoint("::", 3)
    broker.begin_serving(inside, {"INSIDE": inside, "OUTSIDE": outside, "THIRD": third})
    assert {name: str(endpoint) for name, endpoint in broker.reached_at().items()} == {
        "INSIDE": "127.0.0.1:7",
        "OUTSIDE": "example.com:2",
        "THIRD": "this.host:3",
    }
