"""What clients must do at a listener, by the broker's settings.

A setting counts for one listener after `listener.name.NAME.`, and for all without that. PLAIN's users are options of
its login module, as in Kafka:

    listener.name.NAME.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required
      user_alice="her password" user_bob="his";
"""

from __future__ import annotations

from collections.abc import Mapping

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.listener_endpoints import Listener
from core.common.errors import UsageError
from core.security.client_settings import parse_tls
from core.security.jaas import parse_jaas
from core.security.sasl.scram import MECHANISMS as SCRAM_MECHANISMS
from core.security.secret import Secret
from core.security.server_security import ClientAuth, ListenerSecurity, ServerSasl, ServerTls

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
"""The mechanisms that plog's broker has."""

_USER = "user_"


def find_listener_security(config: BrokerConfig, listener: Listener) -> ListenerSecurity:
    """Raises UsageError for an invalid setting; the message shows no secret."""
    if config.ignores_security:
        return ListenerSecurity()
    settings = _settings_of(config, listener.name)
    protocol = listener.protocol or ""
    return ListenerSecurity(
        tls=_tls(settings) if protocol.endswith("SSL") else None,
        sasl=_sasl(settings) if protocol.startswith("SASL_") else None,
    )


def _settings_of(config: BrokerConfig, name: str) -> dict[str, str]:
    """Returns the settings that count for the listener, by their plain names."""
    given = {**config.unknown, **config.dynamic_defaults, **config.dynamic}
    prefix = f"listener.name.{name.lower()}."
    own = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
    return {key: value.strip() for key, value in {**given, **own}.items()}


def _tls(settings: Mapping[str, str]) -> ServerTls:
    auth = settings.get("ssl.client.auth", "").lower() or ClientAuth.NONE
    if auth not in tuple(ClientAuth):
        raise UsageError(f"ssl.client.auth={auth}, expected one of {', '.join(ClientAuth)}")
    about_tls = {key: value for key, value in settings.items() if key.startswith("ssl.")}
    rules = settings.get("ssl.principal.mapping.rules") or "DEFAULT"
    return ServerTls(parse_tls(about_tls), ClientAuth(auth), rules)


def _sasl(settings: Mapping[str, str]) -> ServerSasl:
    names = settings.get("sasl.enabled.mechanisms", "GSSAPI").split(",")
    mechanisms = tuple(name.strip().upper() for name in names if name.strip())
    unknown = [name for name in mechanisms if name not in MECHANISMS]
    if unknown or not mechanisms:
        raise UsageError(f"sasl.enabled.mechanisms={','.join(names)}, expected some of {', '.join(MECHANISMS)}")
    text = settings.get("plain.sasl.jaas.config") or settings.get("sasl.jaas.config")
    options = parse_jaas(text).options if PLAIN in mechanisms and text else {}
    users = {key.removeprefix(_USER): Secret(value) for key, value in options.items() if key.startswith(_USER)}
    lifetimes = {name: _max_reauth_ms(settings, name) for name in mechanisms}
    return ServerSasl(mechanisms, users, {name: ms for name, ms in lifetimes.items() if ms > 0})


def _max_reauth_ms(settings: Mapping[str, str], mechanism: str) -> int:
    name = "connections.max.reauth.ms"
    text = settings.get(f"{mechanism.lower()}.{name}") or settings.get(name) or "0"
    if not text.isdecimal():
        raise UsageError(f"{name}={text}, expected milliseconds")
    return int(text)
