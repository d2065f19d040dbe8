"""Whether a configuration asks for security. plog has none yet: who reaches a broker may do everything.

Served open, a file that asks for more would be a hole that nobody sees; so `plog serve` refuses it.
"""

from __future__ import annotations

import re

from core.broker.broker_config import BrokerConfig

_LISTENER_KEYS = ("listeners", "advertised.listeners")
_OF_ONE_LISTENER = re.compile(r"listener\.name\.[^.]+\.")


def find_asked_security(config: BrokerConfig) -> dict[str, str]:
    """By key, in what way it asks for security; only keys that Kafka would obey. Of their values nothing is told but
    names of listeners and protocols.
    """
    given = config.unknown
    asked = {}
    if given.get("authorizer.class.name", "").strip():
        asked["authorizer.class.name"] = "not everybody may do everything"
    is_sasl = False
    for key in _LISTENER_KEYS:
        secured = [listener for listener in config.client_listeners(key) if not listener.is_plaintext]
        is_sasl |= any(listener.is_sasl for listener in secured)
        if secured:
            asked[key] = ", ".join(f"{one.name} is {one.protocol or 'in no map of protocols'}" for one in secured)
    for key, value in given.items():
        name = _OF_ONE_LISTENER.sub("", key)
        if name == "ssl.client.auth" and value.strip().lower() not in ("", "none"):
            asked[key] = "clients show certificates"
        elif name == "sasl.enabled.mechanisms" and value.strip() and is_sasl:
            asked[key] = "clients log in"
    return asked
