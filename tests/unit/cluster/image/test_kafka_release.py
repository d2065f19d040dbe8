"""The release that a broker's features tell; expected: the names in Kafka's own MetadataVersion."""

from __future__ import annotations

import re
import zipfile

from core.cluster.image.feature_levels import METADATA_VERSION_FEATURE, find_release
from tests.support.for_each import for_each
from tests.support.oracle import KAFKA_VERSION, fetched_libs, requires_kafka


@requires_kafka
def test_levels_are_those_of_kafka() -> None:
    """Kafka 4.3's levels begin at 7, with 3.3-IV3, and go up by one from name to name."""
    with zipfile.ZipFile(fetched_libs() / f"kafka-server-common-{KAFKA_VERSION}.jar") as archive:
        code = archive.read("org/apache/kafka/server/common/MetadataVersion.class")
    names = sorted({tuple(map(int, found)) for found in re.findall(rb"IBP_(\d+)_(\d+)_IV(\d+)", code)})
    assert names[0] == (3, 3, 3)
    for level, (major, minor, _) in enumerate(names, start=7):
        assert find_release({METADATA_VERSION_FEATURE: (7, level)}) == f"{major}.{minor}"


@for_each(
    "features",
    [{}, {"kraft.version": (0, 1)}, {METADATA_VERSION_FEATURE: (7, 999)}, {METADATA_VERSION_FEATURE: (0, 0)}],
)
def test_none_is_guessed(features: dict[str, tuple[int, int]]) -> None:
    assert find_release(features) is None
