"""A listener with TLS, by a client of Python's own."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.listener_endpoints import Listener
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.socket_server import SocketServer
from core.protocol.frame import decode_response, encode_request
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.security.principal import Principal
from tests.support.broker import SteeredNode
from tests.support.certificates import make_ca, sign


async def test_a_client_with_a_certificate(tmp_path: Path) -> None:
    ca = make_ca()
    certificate, key = sign(ca).write(tmp_path, "server")
    (tmp_path / "ca.pem").write_text(ca.pem)
    own_certificate, own_key = sign(ca, "alice", organisation=("plog",)).write(tmp_path, "client")
    settings = {
        "listener.name.inside.ssl.keystore.certificate.chain": certificate.read_text(),
        "listener.name.inside.ssl.keystore.key": key.read_text(),
        "listener.name.inside.ssl.truststore.location": str(tmp_path / "ca.pem"),
        "listener.name.inside.ssl.client.auth": "required",
    }
    broker = SteeredNode(tmp_path / "data", BrokerConfig.parse(settings))
    server = SocketServer(
        broker,
        broker.runtime.follow(LoopRuntime(asyncio.get_running_loop(), broker.directory)),
        [Listener("INSIDE", "SSL", "127.0.0.1:0")],
    )
    await server.start()
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(own_certificate, own_key)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port, ssl=context)
    for number in range(3):
        writer.write(encode_request(METADATA, 12, number, "test", MetadataRequest(topics=[])))
    for number in range(3):
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        correlation_id, response = decode_response(METADATA, 12, memoryview(answer))
        assert correlation_id == number
        assert [one.port for one in response.brokers] == [server.endpoint.port]
    [connection] = server._connections
    assert connection._session is not None
    assert connection._session.principal == Principal("User", "CN=alice,O=plog")
    writer.close()
    server.close()
    broker.close()
