"""Settings of plog's that other clients get by their own names."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.client.net.other_clients import librdkafka_settings, python_arguments
from core.common.errors import UsageError
from core.security.client_settings import parse_client_settings
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each

SCRAM = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "s"}
AS_LIBRDKAFKA = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "s"}


@for_each(
    "javas, librdkafkas",
    [
        ({}, {}),
        ({"security.protocol": "SASL_PLAINTEXT", **SCRAM}, {"security.protocol": "sasl_plaintext", **AS_LIBRDKAFKA}),
        (
            {
                "security.protocol": "SASL_SSL",
                "ssl.truststore.location": "ca.pem",
                "ssl.truststore.type": "PEM",
                **SCRAM,
            },
            {"security.protocol": "sasl_ssl", "ssl.ca.location": "ca.pem", **AS_LIBRDKAFKA},
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.certificates": "PEM",
                "ssl.keystore.location": "both.pem",
                "ssl.keystore.type": "PEM",
                "ssl.key.password": "k",
                "ssl.endpoint.identification.algorithm": "",
            },
            {
                "security.protocol": "ssl",
                "ssl.ca.pem": "PEM",
                "ssl.certificate.location": "both.pem",
                "ssl.key.location": "both.pem",
                "ssl.key.password": "k",
                "ssl.endpoint.identification.algorithm": "none",
            },
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.keystore.location": "client.p12",
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.password": "k",
                "ssl.key.password": "k",
                "enable.ssl.certificate.verification": "false",
            },
            {
                "security.protocol": "ssl",
                "ssl.keystore.location": "client.p12",
                "ssl.keystore.password": "k",
                "ssl.endpoint.identification.algorithm": "none",
                "enable.ssl.certificate.verification": "false",
            },
        ),
    ],
)
def test_names_of_librdkafka(javas: dict[str, str], librdkafkas: dict[str, str]) -> None:
    assert librdkafka_settings(parse_client_settings(javas).security) == librdkafkas


def test_arguments_of_pythons_clients(tmp_path: Path) -> None:
    ca = make_ca()
    (tmp_path / "ca.pem").write_text(ca.pem)
    certificate, key = sign(ca).write(tmp_path, "client")
    (tmp_path / "both.pem").write_text(Path(key).read_text() + Path(certificate).read_text())
    tls = {"ssl.truststore.location": str(tmp_path / "ca.pem"), "ssl.keystore.location": str(tmp_path / "both.pem")}
    found = python_arguments(parse_client_settings({"security.protocol": "SASL_SSL", **SCRAM, **tls}).security)
    context = found.pop("ssl_context")
    assert len(context.get_ca_certs()) == 1
    assert context.check_hostname
    assert found == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "s",
    }
    assert python_arguments(parse_client_settings({}).security) == {"security_protocol": "PLAINTEXT"}


@for_each(
    "settings, message",
    [
        ({"security.protocol": "SSL", "ssl.truststore.location": "t", "ssl.truststore.type": "JKS"}, "no JKS store"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "t", "ssl.truststore.password": "x"},
            "no trust store",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": "t"},
            "OAUTHBEARER is set up otherwise in librdkafka",
        ),
    ],
)
def test_what_librdkafka_can_not_have(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        librdkafka_settings(parse_client_settings(settings).security)
