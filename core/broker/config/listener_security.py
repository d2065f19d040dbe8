"""What clients must do at a listener, by the broker's settings.

A setting counts for one listener after `listener.name.NAME.`, with the name in lower case, and for all without that. A
login module is of one listener and one mechanism. As in Kafka, the users of PLAIN are options of its module, and
`username` and `password` are this broker's own login at the other brokers of its cluster:

    listener.name.NAME.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required
      username="broker" password="its own" user_broker="its own" user_alice="her password";
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import LISTENER_PREFIX, listener_prefix, plain_name, split_listener
from core.broker.serving.listener_endpoints import Listener
from core.common.config_def import value_text
from core.common.errors import UsageError
from core.common.printable import did_you_mean
from core.security.client_security import ClientSecurity, PasswordLogin, Tls
from core.security.client_settings import LOGIN_MODULES, login_options, parse_tls
from core.security.jaas import LoginModule, parse_jaas
from core.security.sasl.scram import MECHANISMS as SCRAM_MECHANISMS
from core.security.secret import Secret
from core.security.server_security import OPEN, ClientAuth, ListenerSecurity, ServerSasl, ServerTls

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
"""The mechanisms that plog's broker has."""

_OF_LISTENERS = ("ssl.", "sasl.", BrokerConfig.connections_max_reauth_ms.key.name)
_OF_PEERS = (BrokerConfig.sasl_mechanism_inter_broker_protocol.key.name,)
_USER = "user_"
_JAAS = BrokerConfig.sasl_jaas_config.key.name
_CLIENT_AUTH = BrokerConfig.ssl_client_auth.key.name
_ENABLED = BrokerConfig.sasl_enabled_mechanisms.key.name


def find_listener_security(config: BrokerConfig, listener: Listener) -> ListenerSecurity:
    """Raises UsageError for an invalid setting, and for one that is missing; the message shows no secret."""
    if config.ignores_security:
        return OPEN
    with about(listener):
        return ListenerSecurity(
            tls=_server_tls(config, listener) if listener.has_tls else None,
            sasl=_server_sasl(config, listener.name) if listener.is_sasl else None,
        )


@contextlib.contextmanager
def about(listener: Listener) -> Iterator[None]:
    """Errors in the block name the listener."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"listener {listener}, {listener.protocol}: {error.message}", hint=error.hint) from None


def authenticates(config: BrokerConfig, listener: Listener) -> bool:
    """Returns whether each client of the listener says who it is. Raises what `find_listener_security` raises."""
    found = find_listener_security(config, listener)
    return found.sasl is not None or (found.tls is not None and found.tls.client_auth is ClientAuth.REQUIRED)


def has_scram(config: BrokerConfig) -> bool:
    """Returns whether clients log in by SCRAM at a listener. Raises what `find_listener_security` raises."""
    found = (find_listener_security(config, listener).sasl for listener in config.served_listeners)
    return any(mechanism in SCRAM_MECHANISMS for sasl in found if sasl is not None for mechanism in sasl.mechanisms)


def find_peer_security(config: BrokerConfig) -> ClientSecurity:
    """Returns how this broker connects to others, at their listener for brokers: with its own listener's certificate
    and trust, and the login in that listener's module. Raises UsageError for an invalid setting, and a missing one.
    """
    name = config.inter_broker_listener
    protocol = config.protocol_of(name)
    return ClientSecurity(
        tls=_tls(config, name) if protocol.endswith("SSL") else None,
        login=_peer_login(config, name) if protocol.startswith("SASL_") else None,
    )


def find_unused_settings(config: BrokerConfig, keys: Iterable[str] | None = None) -> dict[str, str]:
    """Returns by key why a setting of listeners changes nothing, of these or else of all static ones; not if security
    is ignored.
    """
    unused = {}
    for key in () if config.ignores_security else config.static if keys is None else keys:
        of_listeners = plain_name(key).startswith(_OF_LISTENERS) and key not in _OF_PEERS
        if of_listeners and not config.is_of_controllers(key) and (why := _why_unused(config, key)) is not None:
            unused[key] = why
    return unused


def _why_unused(config: BrokerConfig, key: str) -> str | None:
    plain = plain_name(key)
    name, rest = split_listener(key)
    mechanism = rest.removesuffix(plain).removesuffix(".")
    served = config.served_listeners
    concerned = [one for one in served if one.name.lower() == name] if name else served
    if name and not concerned:
        known = [one.name.lower() for one in served]
        return f"no listener is called {name}, expected {' or '.join(known) or 'plaintext'}, in lower case"
    needed = "TLS" if plain.startswith("ssl.") else "SASL"
    fitting = [one for one in concerned if (one.is_sasl if needed == "SASL" else one.has_tls)]
    if not fitting:
        return f"no listener has {needed}" if not name else f"listener {name} has no {needed}"
    if mechanism and mechanism.upper() not in config.of_listener(name).sasl_enabled_mechanisms:
        return f"{_ENABLED} of listener {name} has no {mechanism.upper()}"
    if key == _JAAS:
        return f"it is obeyed as {LISTENER_PREFIX}NAME.MECHANISM.{_JAAS} alone"
    if (
        key == _CLIENT_AUTH
        and config.ssl_client_auth.lower() != ClientAuth.NONE
        and all(one.is_sasl for one in fitting)
    ):
        return f"clients of SASL_SSL log in; {LISTENER_PREFIX}NAME.{_CLIENT_AUTH} asks for a certificate as well"
    return None


# --- TLS


def _server_tls(config: BrokerConfig, listener: Listener) -> ServerTls:
    own = config.of_listener(listener.name)
    tls = _tls(config, listener.name)
    if tls.key_store is None:
        key = f"{listener_prefix(listener.name)}ssl.keystore.location"
        raise UsageError("it has no certificate", hint=f"{key}=FILE; plog cert dev makes one to try it with")
    client_auth = ClientAuth(own.ssl_client_auth.lower())
    if listener.is_sasl and listener_prefix(listener.name) + _CLIENT_AUTH not in config.settings:
        client_auth = ClientAuth.NONE  # as in Kafka: its clients log in
    return ServerTls(
        tls, client_auth, own.ssl_principal_mapping_rules, own.ssl_allow_dn_changes, own.ssl_allow_san_changes
    )


def _tls(config: BrokerConfig, listener_name: str) -> Tls:
    """Defaults are left out: the first bytes of a store tell its type."""
    settings = config.of_listener(listener_name).settings
    return parse_tls({name: value_text(value) or "" for name, value in settings.items() if name.startswith("ssl.")})


# --- SASL


def _server_sasl(config: BrokerConfig, name: str) -> ServerSasl:
    own = config.of_listener(name)
    mechanisms = tuple(dict.fromkeys(own.sasl_enabled_mechanisms))
    _ensure_spoken(mechanisms, name, is_given=BrokerConfig.sasl_enabled_mechanisms.is_given(own))
    users = {mechanism: _login(config, name, mechanism)[0] for mechanism in mechanisms}
    if PLAIN in mechanisms and not users[PLAIN]:
        raise _no_users(config, name)
    lifetimes = {one: config.of_listener(name, one).connections_max_reauth_ms for one in mechanisms}
    return ServerSasl(
        mechanisms,
        users.get(PLAIN, {}),
        {mechanism: ms for mechanism, ms in lifetimes.items() if ms > 0},
        own.sasl_server_max_receive_size,
        own.connection_failed_authentication_delay_ms,
    )


def _ensure_spoken(mechanisms: Iterable[str], name: str, *, is_given: bool) -> None:
    expected = f"expected some of {', '.join(MECHANISMS)}"
    if not is_given:
        raise UsageError(
            f"{_ENABLED} is not set, and Kafka's default is GSSAPI (Kerberos), which plog does not speak: {expected}",
            hint=f"{listener_prefix(name)}{_ENABLED}=SCRAM-SHA-512",
        )
    unknown = next((one for one in mechanisms if one not in MECHANISMS), None)
    if unknown is not None:
        hint = did_you_mean(unknown, MECHANISMS) or "leave it out: clients may log in by the others"
        raise UsageError(f"{_ENABLED}: plog does not speak {unknown or 'an empty name'}, {expected}", hint=hint)
    if not mechanisms:
        raise UsageError(f"{_ENABLED} is empty, {expected}")


def _login(config: BrokerConfig, name: str, mechanism: str) -> tuple[dict[str, Secret], dict[str, str]]:
    """Returns the users in the mechanism's login module, and its other options, checked; nothing without a module."""
    key = f"{listener_prefix(name, mechanism)}{_JAAS}"
    text = config.settings.get(key)
    if not text:
        return {}, {}
    try:
        module = parse_jaas(str(text))
        starts = (_USER,) if mechanism == PLAIN else ()
        users = {option: value for option, value in module.options.items() if option.startswith(starts)}
        others = {option: value for option, value in module.options.items() if option not in users}
        login_options(LoginModule(module.name, others), mechanism)
    except UsageError as error:
        raise UsageError(error.message.replace(_JAAS, key, 1), hint=error.hint) from None
    return {user.removeprefix(_USER): Secret(password) for user, password in users.items()}, others


def _no_users(config: BrokerConfig, name: str) -> UsageError:
    """Explains where PLAIN's users are expected: Kafka may have had them in a file that only Java's options name."""
    key = f"{listener_prefix(name, PLAIN)}{_JAAS}"
    misnamed = [one for one in config.unknown if one.endswith(_JAAS)]
    misnamed += [one for one in config.settings if one == _JAAS or (one.lower() == key and one != key)]
    if misnamed:
        hint = f"{misnamed[0]} is not obeyed, neither by Kafka: its name is {key}"
    else:
        hint = (
            f'{key}={LOGIN_MODULES[PLAIN]} required user_alice="..";  A JAAS file, which Java finds by '
            "java.security.auth.login.config, is not read: its section is this line"
        )
    return UsageError("PLAIN has no users", hint=hint)


def _peer_login(config: BrokerConfig, name: str) -> PasswordLogin:
    mechanism = config.sasl_mechanism_inter_broker_protocol
    setting = BrokerConfig.sasl_mechanism_inter_broker_protocol.key.name
    enabled = config.of_listener(name).sasl_enabled_mechanisms
    if mechanism not in MECHANISMS or mechanism not in enabled:
        raise UsageError(
            f"{setting} is {mechanism}, expected one of the mechanisms of listener {name}: {', '.join(enabled)}",
            hint=did_you_mean(mechanism, enabled),
        )
    _, options = _login(config, name, mechanism)
    if not options.get("username") or not options.get("password"):
        key = f"{listener_prefix(name, mechanism)}{_JAAS}"
        raise UsageError(
            f"{key} has no username and password, with which this broker logs in at others",
            hint=f'{key}={LOGIN_MODULES[mechanism]} required username=".." password="..";',
        )
    is_token = options.get("tokenauth", "false").lower() == "true"
    return PasswordLogin(mechanism, options["username"], Secret(options["password"]), is_token)
