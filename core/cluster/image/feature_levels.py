"""The features of a cluster, their levels, and which level may follow which (KIP-584, KIP-778).

A broker supports a range of levels of a feature. The cluster finalizes one level of it, which each broker then works
at; 0 is the level of a feature that is not finalized. A broker's levels tell its release of Kafka; no request asks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"

Feature = tuple[str, int]
"""A feature, and its lowest level with an effect."""

GROUPS_OF_CONSUMERS: Feature = (GROUP_VERSION, 1)
"""The feature that brings groups of the consumer protocol (KIP-848)."""

METADATA_VERSION = 33
"""`metadata.version` of the records that a lone broker writes: Kafka 4.4's."""

Levels = Mapping[str, tuple[int, int]]
"""Feature -> (lowest, highest level) that a broker can work at."""

SUPPORTED_FEATURES: Levels = {
    "metadata.version": (7, METADATA_VERSION),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""Features of a lone broker; a feature is added when plog has it."""

MEMBERS_FEATURES: Levels = {name: SUPPORTED_FEATURES[name] for name in (GROUP_VERSION, TRANSACTION_VERSION)}
"""Features of a member of a cluster with ZooKeeper: its metadata has no records, and so no metadata.version."""


def is_finalized(finalized: Mapping[str, int], feature: Feature) -> bool:
    name, level = feature
    return finalized.get(name, 0) >= level


class UpgradeType(IntEnum):
    """The direction of a change; numbers of org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """Accepts the loss of things that the higher level brought."""


class FeatureUpdate(NamedTuple):
    """The new level of a feature."""

    name: str
    level: int
    way: UpgradeType


def ensure_may_be(update: FeatureUpdate, current: int, supported: Levels) -> None:
    """Raises KafkaError(INVALID_UPDATE_VERSION) unless this broker supports the level, and the direction fits the
    current one.
    """
    name, level, way = update
    is_upgrade = way is UpgradeType.UPGRADE
    if name not in supported:
        raise refusal(update, "this broker has no such feature")
    lowest, highest = supported[name]
    if not lowest <= level <= highest:
        raise refusal(update, f"this broker supports levels {lowest} to {highest}")
    if is_upgrade and level < current:
        raise refusal(update, f"it is {current}, which a downgrade only lowers")
    if not is_upgrade and level > current:
        raise refusal(update, f"it is {current}, which an upgrade only raises")


def refusal(update: FeatureUpdate, problem: str) -> KafkaError:
    """Returns the error that refuses the update, for that reason."""
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{update.name} can't be set to {update.level}: {problem}")


def unsupported(finalized: Mapping[str, int], supported: Levels) -> dict[str, int]:
    """Returns the finalized levels at which a broker with those levels can't work."""
    found = {}
    for name, level in finalized.items():
        lowest, highest = supported.get(name, (0, 0))
        if not lowest <= level <= highest:
            found[name] = level
    return found


METADATA_VERSION_FEATURE = "metadata.version"
"""Finalized in clusters with KRaft, not with ZooKeeper."""

_FIRST_LEVELS = (
    (1, "3.0"), (2, "3.1"), (3, "3.2"), (4, "3.3"), (8, "3.4"), (9, "3.5"), (12, "3.6"), (15, "3.7"), (20, "3.8"),
    (21, "3.9"), (22, "4.0"), (26, "4.1"), (28, "4.2"), (30, "4.3"), (31, "4.4"), (34, "4.5"),
)  # fmt: skip
"""The first level of `metadata.version` that each release brought (org.apache.kafka.server.common.MetadataVersion)."""


def find_release(supported_features: Levels) -> str | None:
    """Returns the release of the highest metadata.version that the broker supports, or None if it supports none, as
    with ZooKeeper, or one that is newer than all those known here.
    """
    _, level = supported_features.get(METADATA_VERSION_FEATURE, (0, 0))
    if level > _FIRST_LEVELS[-1][0]:
        return None
    return next((release for first, release in reversed(_FIRST_LEVELS) if first <= level), None)
