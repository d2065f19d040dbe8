"""Which release of Kafka a broker is of, as far as its features tell: no request asks for that."""

from __future__ import annotations

from core.cluster.image.feature_levels import Levels

METADATA_VERSION_FEATURE = "metadata.version"
"""A cluster has finalized it if it has KRaft, and not ZooKeeper."""

_FIRST_LEVELS = (
    (1, "3.0"), (2, "3.1"), (3, "3.2"), (4, "3.3"), (8, "3.4"), (9, "3.5"), (12, "3.6"), (15, "3.7"), (20, "3.8"),
    (21, "3.9"), (22, "4.0"), (26, "4.1"), (28, "4.2"), (30, "4.3"), (31, "4.4"), (34, "4.5"),
)  # fmt: skip
"""The first level of `metadata.version` that each release brought (org.apache.kafka.server.common.MetadataVersion)."""


def find_release(supported_features: Levels) -> str | None:
    """Finds the release of the highest level of metadata.version that the broker supports; None if it says none, as
    with ZooKeeper, or one that is newer than all those known here.
    """
    _, level = supported_features.get(METADATA_VERSION_FEATURE, (0, 0))
    if level > _FIRST_LEVELS[-1][0]:
        return None
    return next((release for first, release in reversed(_FIRST_LEVELS) if first <= level), None)
