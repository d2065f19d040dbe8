"""How the settings of two topics, brokers or other resources differ: their effective values, wherever these come from.

A secret is never compared, as brokers do not tell it. Two more kinds are left out on request: settings in which
brokers must differ, and defaults that only one of two versions of Kafka has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.common.config_def import ConfigSource
from core.protocol.schema.configs import DescribedConfig

_OF_ONE_BROKER = frozenset(
    {
        "broker.id", "node.id", "broker.rack", "log.dir", "log.dirs", "metadata.log.dir", "listeners",
        "advertised.listeners",
    }
)  # fmt: skip


class Difference(NamedTuple):
    """One key; a side that lacks it is None."""

    key: str
    first: DescribedConfig | None
    second: DescribedConfig | None


class ConfigDiff(NamedTuple):
    """`secrets` are keys that somebody has set, and that can't be compared; `expected` are the differences left out."""

    differences: list[Difference]
    secrets: list[str]
    expected: list[Difference]


def diff_configs(
    first: Sequence[DescribedConfig], second: Sequence[DescribedConfig], *, with_expected: bool
) -> ConfigDiff:
    """Compares all keys of two resources; `with_expected` leaves out nothing but secrets."""
    by_key = {one.name: one for one in first}, {one.name: one for one in second}
    found = ConfigDiff([], [], [])
    for key in sorted(by_key[0].keys() | by_key[1].keys()):
        pair = Difference(key, by_key[0].get(key), by_key[1].get(key))
        there = [one for one in pair[1:] if isinstance(one, DescribedConfig)]
        if any(one.is_sensitive for one in there):
            if any(one.config_source != ConfigSource.DEFAULT_CONFIG for one in there):
                found.secrets.append(key)
        elif len(there) < 2 or there[0].value != there[1].value:
            is_default = len(there) < 2 and there[0].config_source == ConfigSource.DEFAULT_CONFIG
            is_expected = key in _OF_ONE_BROKER or is_default
            (found.expected if is_expected and not with_expected else found.differences).append(pair)
    return found
