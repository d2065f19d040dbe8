"""Finds whether a configuration, or a cluster's metadata, asks for security that plog does not have. plog has
authorizers, and what `listener_security.py` reads.

To serve such a configuration openly would be an invisible hole, so `plog serve` refuses it. A guard is a setting by
which Kafka's broker refuses clients something, and which plog does not enforce.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import (
    STANDARD_AUTHORIZER,
    ZOOKEEPER_AUTHORIZERS,
    plain_name,
    split_listener,
)
from core.broker.serving.listener_endpoints import PLAINTEXT, Listener
from core.common.endpoint import Endpoint
from core.common.errors import KafkaError, UsageError
from core.common.java_limits import INT_MAX

_LISTENER_SETTINGS = (BrokerConfig.listeners, BrokerConfig.advertised_listeners)
_NAMING_LISTENERS = (
    *_LISTENER_SETTINGS,
    BrokerConfig.listener_security_protocol_map,
    BrokerConfig.controller_listener_names,
)
_NO_LIMIT = str(INT_MAX)

_GUARDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "authorizer.class.name": ("not everybody may do everything", ()),
    "create.topic.policy.class.name": ("not every topic may be made", ()),
    "alter.config.policy.class.name": ("not every setting may be changed", ()),
    "client.quota.callback.class": ("a class decides which quotas clients have", ()),
    "principal.builder.class": (
        "a class decides who a client is",
        ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",),
    ),
    "max.connections.per.ip.overrides": ("addresses have limits of their own", ()),
    "max.connection.creation.rate": ("new connections have a limit", (_NO_LIMIT,)),
}
"""Guards by name: in what way each asks for security, and the values with which it does not."""

_GUARDS_OF_ONE_LISTENER = {"max.connections": ("its connections have a limit of their own", (_NO_LIMIT,))}
"""Guards only after `listener.name.NAME.`: plog obeys the same key of the whole broker."""

_ACLS_ELSEWHERE = "authorizer.zookeeper.url"
_CHECKS_OF_ZOOKEEPERS_CERTIFICATE = ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")
_WITH_SECURED_LISTENERS = {
    "sasl.server.callback.handler.class": "a class decides who may log in",
    "sasl.login.callback.handler.class": "a class knows the broker's own login",
    "sasl.client.callback.handler.class": "a class logs the broker in",
    "sasl.login.class": "a class logs the broker in",
    "ssl.engine.factory.class": "a class decides which certificates are good",
    "security.providers": "classes decide which cryptography is used",
    "delegation.token.secret.key": "clients log in with delegation tokens",
    "delegation.token.master.key": "clients log in with delegation tokens",
}
"""Guards of brokers whose listeners ask for TLS or a login; `sasl.` ones also after a mechanism's name."""


def find_security_requirements(config: BrokerConfig, *, is_member: bool = False) -> dict[str, str]:
    """Returns by key in what way it asks for security that plog does not have, or that the operator ignores; only for
    keys that Kafka would obey, static or dynamic. Of their values it shows only names of listeners and protocols.
    """
    given = {**config.unknown, **config.dynamic_defaults, **config.dynamic}
    asked = {key: why for key, value in given.items() if (why := _why_guard(config, key, value)) is not None}
    asked |= _why_authorizer(config, is_member=is_member)
    served = {} if config.ignores_security else {one.name: one for one in config.served_listeners}
    asked |= _why_client_auth(config, served)
    config, unreadable = _with_dynamic_listeners(config)
    asked |= dict.fromkeys(unreadable, "it can't be read")
    is_secured = False
    for setting in _LISTENER_SETTINGS:
        secured = [listener for listener in config.client_listeners(setting) if not listener.is_plaintext]
        is_secured |= bool(secured)
        others = [one for one in secured if one.name not in served or served[one.name].protocol != one.protocol]
        if others:
            asked[setting.key.name] = ", ".join(
                f"{one.name} is {one.protocol or 'in no map of protocols'}" for one in others
            )
    for key, value in given.items() if is_secured else ():
        _, name = split_listener(key)
        of_any = name if name.startswith("sasl.") else name.partition(".")[2]  # without the mechanism's name
        why = _WITH_SECURED_LISTENERS.get(name) or _WITH_SECURED_LISTENERS.get(of_any)
        if why is not None and value.strip() and not config.is_of_controllers(key):
            asked[key] = why
    protocol = BrokerConfig.security_inter_broker_protocol
    wanted = protocol.of(config).strip().upper()
    listeners = config.client_listeners(BrokerConfig.listeners)
    if wanted != PLAINTEXT and not any(wanted in (one.name, one.protocol) for one in listeners):
        asked[protocol.key.name] = "no listener speaks it"
    return asked


def _why_client_auth(config: BrokerConfig, served: Mapping[str, Listener]) -> dict[str, str]:
    """Returns the keys by which clients of a single listener would have to show certificates, and do not: there is no
    such listener, or it has no TLS. Kafka reads names of listeners in lower case.
    """
    with_tls = {name.lower() for name, one in served.items() if one.has_tls}
    return {
        key: "clients show certificates, and no listener with TLS has this name, in lower case"
        for key, value in {**config.static, **config.dynamic_defaults, **config.dynamic}.items()
        if (listener := split_listener(key)[0])
        and plain_name(key) == BrokerConfig.ssl_client_auth.key.name
        and str(value).strip().lower() not in ("", "none")
        and listener not in with_tls
        and not config.is_of_controllers(key)
    }


def find_guards(config: BrokerConfig, settings: Mapping[str, str]) -> dict[str, str]:
    """Returns by key in what way dynamic settings of the broker ask for security that plog does not have."""
    asked = find_security_requirements(replace(config, dynamic_defaults={}, dynamic=settings))
    return {key: why for key, why in asked.items() if key in settings}


def _why_authorizer(config: BrokerConfig, *, is_member: bool) -> dict[str, str]:
    """Returns the key of the configured authorizer and the reason why it can't work; empty without an authorizer, or
    if it works.
    """
    name = BrokerConfig.authorizer_class_name.key.name
    known = ZOOKEEPER_AUTHORIZERS if is_member else (STANDARD_AUTHORIZER,)
    if config.authorizer_class_name and config.ignores_security:
        return {name: _GUARDS[name][0]}
    if config.authorizer_class_name in ("", *known):
        elsewhere = config.unknown.get(_ACLS_ELSEWHERE, "").strip() if config.authorizer_class_name in known else ""
        is_here = not is_member or elsewhere in ("", config.unknown.get("zookeeper.connect", "").strip())
        return {} if is_here else {_ACLS_ELSEWHERE: "the ACLs are in another ZooKeeper"}
    return {
        name: f"the authorizer of {'a member of a ZooKeeper cluster' if is_member else 'a lone broker'} is {known[0]}"
    }


def _why_guard(config: BrokerConfig, key: str, value: str) -> str | None:
    """Returns in what way the setting asks for security, or None if it does not."""
    text = value.strip()
    if key in _CHECKS_OF_ZOOKEEPERS_CERTIFICATE:
        is_guard = text.lower() == "true" and config.zookeeper_ssl_client_enable
        return "certificates that were revoked are refused" if is_guard else None
    if config.is_of_controllers(key):
        return None
    listener, name = split_listener(key)
    guards = _GUARDS_OF_ONE_LISTENER if listener and name in _GUARDS_OF_ONE_LISTENER else _GUARDS
    why, harmless = guards.get(name, (None, ()))
    return why if text and text not in harmless else None


def _with_dynamic_listeners(config: BrokerConfig) -> tuple[BrokerConfig, list[str]]:
    """Returns a copy with the dynamic listeners, as Kafka obeys them, and the listener settings that can't be read."""
    dynamic = {**config.dynamic_defaults, **config.dynamic}
    given = {setting.key.name: setting.key for setting in _NAMING_LISTENERS if setting.key.name in dynamic}
    try:
        parsed = {name: key.parse(dynamic[name]) for name, key in given.items()}
        changed = replace(config, settings={**config.settings, **parsed}) if parsed else config
        for setting in _LISTENER_SETTINGS if parsed else ():
            changed.client_listeners(setting)
    except (KafkaError, UsageError):
        return config, list(given)
    return changed, []


def ensure_open_to_everybody(held: str, listen: Endpoint, authorizer: str = STANDARD_AUTHORIZER) -> None:
    """Raises UsageError if the metadata hold security settings, no authorizer is at work, and the address can be
    reached from other machines. `held`: the number of each kind, for people; empty for no settings. `authorizer`: the
    class that would be the way out.
    """
    if held and not listen.is_loopback:
        raise UsageError(
            f"the metadata hold {held}, and plog obeys none of them: not served on {listen}",
            hint=f"obey ACLs by authorizer.class.name={authorizer}, listen on 127.0.0.1, or serve it without any "
            "security by --insecure-ignore-security",
        )


def ensure_asks_for_none(config: BrokerConfig, *, is_member: bool = False) -> None:
    """Raises UsageError for a configuration that asks for security that plog does not have, and for a listener whose
    settings are wrong, unless the operator ignores that.
    """
    ensure_unguarded(config, is_member=is_member)
    for listener in config.served_listeners:
        if not listener.is_plaintext:
            from core.broker.config.listener_security import find_listener_security

            find_listener_security(config, listener)


def ensure_unguarded(config: BrokerConfig, *, is_member: bool = False) -> None:
    """Raises UsageError for a configuration that asks for security that plog does not have, unless the operator ignores
    that.
    """
    asked = {} if config.ignores_security else find_security_requirements(config, is_member=is_member)
    if asked:
        keys = ", ".join(f"{name} ({why})" for name, why in asked.items())
        hint = "--insecure-ignore-security serves it without any: anybody who reaches the broker may do everything"
        authorizer = BrokerConfig.authorizer_class_name.key.name
        if authorizer in asked:
            known = ZOOKEEPER_AUTHORIZERS[0] if is_member else STANDARD_AUTHORIZER
            hint = f"ACLs are obeyed by {authorizer}={known}; {hint}"
        raise UsageError(f"the configuration asks for security that plog does not have: {keys}", hint=hint)
