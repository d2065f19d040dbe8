"""Finds whether a configuration or a directory's metadata ask for security. plog has none yet: whoever reaches a broker
may do everything.

Served open, what asks for more would be a hole that nobody sees; so `plog serve` refuses it.
"""

from __future__ import annotations

import re

from core.broker.broker_config import BrokerConfig
from core.cluster.metadata_image import MetadataImage
from core.common.endpoint import Endpoint
from core.common.errors import UsageError

_LISTENER_SETTINGS = (BrokerConfig.listeners, BrokerConfig.advertised_listeners)
_OF_ONE_LISTENER = re.compile(r"listener\.name\.[^.]+\.")


def find_asked_security(config: BrokerConfig) -> dict[str, str]:
    """Says by key in what way it asks for security; only for keys that Kafka would obey. Of their values it shows only
    names of listeners and protocols.
    """
    given = config.unknown
    asked = {}
    if given.get("authorizer.class.name", "").strip():
        asked["authorizer.class.name"] = "not everybody may do everything"
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
        elif name == "sasl.enabled.mechanisms" and value.strip() and is_sasl:
            asked[key] = "clients log in"
    return asked


def ensure_open_to_everybody(image: MetadataImage, listen: Endpoint) -> None:
    """Raises UsageError if the metadata hold ACLs, users or quotas, and more than this machine reaches the address."""
    summary = image.security.summary()
    if summary and not listen.is_loopback:
        raise UsageError(
            f"the metadata hold {summary}, and plog obeys none of them: not served on {listen}",
            hint="listen on 127.0.0.1, or serve it without any security by --insecure-ignore-security",
        )
