"""Finds whether a configuration, or a cluster's metadata, asks for security that plog does not have. It has
authorizers, and no listener at which clients say who they are.

To serve such a configuration openly would be an invisible hole, so `plog serve` refuses it. A guard is a setting by
which Kafka's broker refuses clients something, and which plog does not enforce.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import STANDARD_AUTHORIZER, ZOOKEEPER_AUTHORIZERS
from core.common.endpoint import Endpoint
from core.common.errors import KafkaError, UsageError
from core.common.java_limits import INT_MAX

_LISTENER_SETTINGS = (BrokerConfig.listeners, BrokerConfig.advertised_listeners)
_NAMING_LISTENERS = (
    *_LISTENER_SETTINGS,
    BrokerConfig.listener_security_protocol_map,
    BrokerConfig.controller_listener_names,
)
_OF_ONE_LISTENER = re.compile(r"listener\.name\.([^.]+)\.")
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
_OF_SASL = {
    "sasl.enabled.mechanisms": "clients log in",
    "sasl.server.callback.handler.class": "a class decides who may log in",
}


def find_security_requirements(config: BrokerConfig, *, is_member: bool = False) -> dict[str, str]:
    """Returns by key in what way it asks for security that plog does not have, or that the operator ignores; only for
    keys that Kafka would obey, static or dynamic. Of their values it shows only names of listeners and protocols.
    """
    given = {**config.unknown, **config.dynamic_defaults, **config.dynamic}
    asked = {key: why for key, value in given.items() if (why := _why_guard(config, key, value)) is not None}
    asked |= _why_authorizer(config, is_member=is_member)
    config, unreadable = _with_dynamic_listeners(config)
    asked |= dict.fromkeys(unreadable, "it can't be read")
    is_sasl = False
    for setting in _LISTENER_SETTINGS:
        secured = [listener for listener in config.client_listeners(setting) if not listener.is_plaintext]
        is_sasl |= any(listener.is_sasl for listener in secured)
        if secured:
            asked[setting.key.name] = ", ".join(
                f"{one.name} is {one.protocol or 'in no map of protocols'}" for one in secured
            )
    for key, value in given.items():
        name = _OF_ONE_LISTENER.sub("", key)
        if name == "ssl.client.auth" and value.strip().lower() not in ("", "none"):
            asked[key] = "clients show certificates"
        of_any = name if name.startswith("sasl.") else name.partition(".")[2]  # without the mechanism's name
        if of_any in _OF_SASL and value.strip() and is_sasl:
            asked[key] = _OF_SASL[of_any]
    between_brokers = given.get("security.inter.broker.protocol", "").strip().upper()
    if between_brokers not in ("", "PLAINTEXT") and not _is_spoken(config, between_brokers):
        asked["security.inter.broker.protocol"] = "no listener speaks it"
    return asked


def find_guards(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns by key in what way dynamic settings of a broker ask for security."""
    return find_security_requirements(BrokerConfig(dynamic=settings))


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
    found = _OF_ONE_LISTENER.match(key)
    controllers = {name.strip().upper() for name in config.controller_listener_names or ()}
    if found is not None and found[1].upper() in controllers:
        return None
    name = _OF_ONE_LISTENER.sub("", key)
    guards = _GUARDS_OF_ONE_LISTENER if found is not None and name in _GUARDS_OF_ONE_LISTENER else _GUARDS
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


def _is_spoken(config: BrokerConfig, protocol: str) -> bool:
    listeners = config.client_listeners(BrokerConfig.listeners)
    return any(protocol in (listener.name, listener.protocol) for listener in listeners)


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
