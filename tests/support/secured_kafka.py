"""An Apache Kafka with a listener for each way of authenticating, and what clients need for each."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.certificates import Certificate, make_ca, sign
from tests.support.class_archives import kafka_options
from tests.support.free_ports import free_ports
from tests.support.kafka_server import KafkaServer
from tests.support.oracle import run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSWORD = "marked-password"
"""Of alice, for PLAIN and SCRAM."""

CLIENT_SECRET = "marked-secret"
"""Of plog, at the token endpoint."""

TOKEN_LIFETIME_S = 5
REAUTHENTICATION_MS = int(os.environ.get("PLOG_SECURED_SESSION_MS", "3000"))
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_LISTENERS = {
    "SASLP": "SASL_PLAINTEXT",
    "SASLS": "SASL_SSL",
    "OAUTH": "SASL_SSL",
    "REAUTH": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MTLS": "SSL",
}


class SecuredKafka:
    """Made by `start`; `port` of a listener by its name, `settings` of a way by its name. `java_options`: those of a
    test, with which Kafka encrypts slowly, unless others are given.
    """

    def __init__(self, folder: Path, java_options: tuple[str, ...] = ("-Xmx512M", *kafka_options())) -> None:
        self.folder = folder
        self._java_options = java_options
        self.ports = dict(zip(_LISTENERS, free_ports(len(_LISTENERS)), strict=True))
        self.ca = make_ca()
        self.identity_key = rsa.generate_private_key(65537, 2048)
        (folder / "ca.pem").write_text(self.ca.pem)
        server = sign(self.ca)
        (folder / "server.pem").write_text(server.key_pem() + server.pem)
        (folder / "jwks.json").write_text(json.dumps({"keys": [self._jwk()]}))
        self.client = sign(self.ca, "alice", organisation=("plog", "eng"))
        self.client.write(folder, "alice")
        self.server = self._server()
        self.delegation_token = ("", "")
        self.endpoint = TokenEndpoint(self)

    def _server(self) -> KafkaServer:
        jwks = f"file://{self.folder / 'jwks.json'}"
        server = KafkaServer(
            self.folder / "data",
            java_options=(
                *self._java_options,
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}",
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={self.folder / 'jwks.json'}",
            ),
        )
        controller = server._controller_port
        names = {"PLAINTEXT": server.address, **{name: f"127.0.0.1:{port}" for name, port in self.ports.items()}}
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_LISTENERS}
        listed = ",".join(f"{name}://{address}" for name, address in names.items())
        settings = {
            "listeners": f"{listed},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listed,
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "listener.name.mtls.ssl.client.auth": "required",
            "delegation.token.secret.key": "a secret of the test",
            "sasl.oauthbearer.jwks.endpoint.url": jwks,
            "sasl.oauthbearer.expected.audience": "plog",
            "sasl.oauthbearer.expected.issuer": "https://issuer.example",
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{_BEARER} required;",
            "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            "listener.name.reauth.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
        }
        for name in ("saslp", "sasls", "reauth"):
            prefix = f"listener.name.{name}"
            settings[f"{prefix}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
            settings[f"{prefix}.plain.sasl.jaas.config"] = f'{_PLAIN} required user_alice="{PASSWORD}";'
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{_SCRAM} required;"
        server._settings += "".join(f"{name}={value}\n" for name, value in settings.items())
        return server

    def start(self) -> None:
        """Makes alice, and a delegation token of hers."""
        self.server.format()
        self.server.start()
        self._make_users()
        self.delegation_token = self._make_token()
        self.endpoint.start()

    def _make_users(self) -> None:
        from confluent_kafka import admin as theirs

        admin: Any = theirs.AdminClient({"bootstrap.servers": self.server.address})
        module: Any = theirs
        for mechanism in (module.ScramMechanism.SCRAM_SHA_256, module.ScramMechanism.SCRAM_SHA_512):
            info = module.ScramCredentialInfo(mechanism, 4096)
            change = module.UserScramCredentialUpsertion("alice", info, PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result()

    def _make_token(self) -> tuple[str, str]:
        """(id, HMAC), by Kafka's own tool."""
        done = run_tool(
            "org.apache.kafka.tools.DelegationTokenCommand",
            *("--create", "--max-life-time-period", "-1"),
            *("--bootstrap-server", f"127.0.0.1:{self.ports['SASLP']}"),
            *("--command-config", str(self.write("PLAIN"))),
        )
        done.check_returncode()
        row = done.stdout.decode().strip().splitlines()[-1].split()
        return row[0], row[1]

    def stop(self) -> None:
        self.endpoint.stop()
        self.server.stop()

    def secrets(self) -> list[bytes]:
        """What no output may show: parts of all that clients keep to themselves."""
        key = "".join(self.client.key_pem().splitlines()[1:-1])
        tokens = [(self.folder / "token").read_text(), *self.endpoint.given]
        signatures = [token.rpartition(".")[2] for token in tokens]
        return [text.encode() for text in ("marked", self.delegation_token[1], key[:40], key[-40:], *signatures)]

    def write(self, way: str, listener: str | None = None, **more: str) -> Path:
        """The client.properties of a way, as Kafka's own tools take it."""
        name, settings = self.ways()[way]
        port = self.ports[listener or name]
        protocol = {"security.protocol": _LISTENERS[listener or name]}
        merged = {"bootstrap.servers": f"127.0.0.1:{port}", **settings, **protocol}
        merged |= {key.replace("_", "."): value for key, value in more.items()}
        path = self.folder / f"{way}-{listener or name}-{len(more)}.properties".replace(" ", "-")
        path.write_text("".join(f"{key}={value}\n" for key, value in merged.items()))
        path.chmod(0o600)
        return path

    def ways(self) -> Mapping[str, tuple[str, dict[str, str]]]:
        """(listener, settings) of each."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.folder / "ca.pem")}
        user = f'required username="alice" password="{PASSWORD}";'
        token_id, hmac = self.delegation_token
        token_file = self.folder / "token"
        token_file.write_text(self.bearer_token())
        keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._key_file())}
        return {
            "PLAIN": ("SASLP", {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{_PLAIN} {user}"}),
            "PLAIN over TLS": ("SASLS", {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{_PLAIN} {user}", **trust}),
            **{
                mechanism: ("SASLS", {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{_SCRAM} {user}", **trust})
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            },
            "delegation token": (
                "SASLS",
                {
                    "sasl.mechanism": "SCRAM-SHA-256",
                    "sasl.jaas.config": (
                        f'{_SCRAM} required username="{token_id}" password="{hmac}" tokenauth="true";'
                    ),
                    **trust,
                },
            ),
            "OAUTHBEARER": (
                "OAUTH",
                {
                    "sasl.mechanism": "OAUTHBEARER",
                    "sasl.jaas.config": f"{_BEARER} required;",
                    "sasl.oauthbearer.token.endpoint.url": f"file://{token_file}",
                    **trust,
                },
            ),
            "token endpoint": (
                "OAUTH",
                {
                    "sasl.mechanism": "OAUTHBEARER",
                    "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
                    "sasl.oauthbearer.client.credentials.client.id": "plog",
                    "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
                    "sasl.oauthbearer.scope": "kafka",
                    **trust,
                },
            ),
            "TLS": ("TLS", trust),
            "mTLS": ("MTLS", {**trust, **keys}),
            "renewed": (
                "REAUTH",
                {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f"{_SCRAM} {user}"},
            ),
        }

    def _key_file(self) -> Path:
        path = self.folder / "alice-both.pem"
        path.write_text(self.client.key_pem() + self.client.pem)
        return path

    # --- tokens

    def bearer_token(self, **changed: object) -> str:
        now = int(time.time())
        claims = {"sub": "alice", "iss": "https://issuer.example", "aud": "plog", "iat": now, "exp": now + 3600}
        signed = ".".join(
            _base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "k1"}, claims | changed)
        )
        signature = self.identity_key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"

    def _jwk(self) -> dict[str, str]:
        numbers = self.identity_key.public_key().public_numbers()
        n, e = (_base64(number.to_bytes((number.bit_length() + 7) // 8)) for number in (numbers.n, numbers.e))
        return {"kty": "RSA", "kid": "k1", "alg": "RS256", "use": "sig", "n": n, "e": e}


class TokenEndpoint:
    """Gives tokens of alice, each good for a few seconds, to who knows the client's secret."""

    def __init__(self, kafka: SecuredKafka) -> None:
        self.given: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                known = "Basic " + base64.b64encode(f"plog:{CLIENT_SECRET}".encode()).decode()
                status, answer = 401, {"error": "invalid_client"}
                if self.headers["Authorization"] == known and form["grant_type"] == ["client_credentials"]:
                    outer.given.append(kafka.bearer_token(exp=int(time.time()) + TOKEN_LIFETIME_S))
                    status, answer = 200, {"access_token": outer.given[-1], "expires_in": TOKEN_LIFETIME_S}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self.given:
            self._server.shutdown()
        self._server.server_close()


def other_client(folder: Path, ca: Certificate) -> Path:
    """A client's certificate of another CA, in one file."""
    stranger = sign(ca, "stranger")
    path = folder / "stranger.pem"
    path.write_text(stranger.key_pem() + stranger.pem)
    return path


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
