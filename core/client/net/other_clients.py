"""A `ClientSecurity` as the settings of other clients: librdkafka's names, and the arguments of kafka-python and
aiokafka.
"""

from __future__ import annotations

from typing import Any

from core.common.errors import UsageError
from core.files.tls_context import make_context
from core.security.client_security import ClientSecurity, KeyStore, PasswordLogin, StoreType, Tls, TrustStore


def librdkafka_settings(security: ClientSecurity) -> dict[str, str]:
    """Returns the settings, without the servers. Raises UsageError for what librdkafka can't have: a Java trust store,
    and a token of OAUTHBEARER, for which its clients have functions.
    """
    found = {"security.protocol": security.protocol.lower()} if security.protocol != "PLAINTEXT" else {}
    if security.tls is not None:
        found |= _tls(security.tls)
    login = _password_login(security, "librdkafka")
    if login is not None:
        found |= {"sasl.mechanisms": login.mechanism, "sasl.username": login.name}
        found["sasl.password"] = login.password.reveal()
    return found


def python_arguments(security: ClientSecurity) -> dict[str, Any]:
    """Returns the arguments that kafka-python's and aiokafka's clients have in common, without the servers. Raises what
    `make_context` raises; UsageError for OAUTHBEARER.
    """
    found: dict[str, Any] = {"security_protocol": security.protocol}
    if security.tls is not None:
        found["ssl_context"] = make_context(security.tls)
    login = _password_login(security, "kafka-python")
    if login is not None:
        found |= {"sasl_mechanism": login.mechanism, "sasl_plain_username": login.name}
        found["sasl_plain_password"] = login.password.reveal()
    return found


def _tls(tls: Tls) -> dict[str, str]:
    found = {} if tls.checks_host_names else {"ssl.endpoint.identification.algorithm": "none"}
    if not tls.checks_certificates:
        found["enable.ssl.certificate.verification"] = "false"
    return found | _trust(tls.trust or TrustStore()) | _key_store(tls.key_store or KeyStore())


def _trust(trust: TrustStore) -> dict[str, str]:
    if trust.type not in (None, StoreType.PEM) or trust.password:
        raise UsageError(
            f"librdkafka reads no {trust.type or 'trust'} store with a password",
            hint="ssl.ca.location, a file of PEM, is for both",
        )
    return _given({"ssl.ca.location": trust.location, "ssl.ca.pem": trust.certificates})


def _key_store(store: KeyStore) -> dict[str, str]:
    chain, key = store.certificate_location, store.key_location
    if store.location and store.type in (None, StoreType.PEM):
        chain = key = store.location
    found: dict[str, str | None] = {
        "ssl.certificate.location": chain,
        "ssl.key.location": key,
        "ssl.certificate.pem": store.certificate_chain,
        "ssl.key.pem": store.key.reveal() if store.key else None,
        "ssl.key.password": store.key_password.reveal() if store.key_password else None,
    }
    if store.location and chain is None:
        password = store.password.reveal() if store.password else None
        found = {"ssl.keystore.location": store.location, "ssl.keystore.password": password}
    return _given(found)


def _given(settings: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if value}


def _password_login(security: ClientSecurity, client: str) -> PasswordLogin | None:
    if security.login is None or isinstance(security.login, PasswordLogin):
        return security.login
    raise UsageError(f"{security.login.mechanism} is set up otherwise in {client}")
