"""docs/protocol.md: every API of Kafka's brokers, the versions that plog serves of it, and what it leaves out.

    .venv/bin/python -m tests.support.protocol_document    writes it anew

Kafka's side comes from its own message definitions.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import NamedTuple

from core.broker.request_dispatcher import SERVED_APIS
from core.protocol.message import VersionRange
from tests.support.oracle import KAFKA_VERSION, fetched_libs

PATH = Path(__file__).parents[2] / "docs" / "protocol.md"

NOTES = {
    "Produce": "Versions 0 to 2 are advertised, as Kafka does, and refused. One record batch a partition and request.",
    "ListOffsets": "Of tiered storage (-4, -5) there is nothing to tell.",
    "FindCoordinator": "Groups and transactional ids; share groups have no coordinator here.",
    "UpdateFeatures": "`metadata.version` is never lowered.",
    "ConsumerGroupHeartbeat": "Racks play no part in assignments.",
    "AlterConfigs": "Keys of brokers that plog does not know are kept, and change nothing.",
    "IncrementalAlterConfigs": "As AlterConfigs.",
    "DescribeConfigs": "Of brokers and groups, the keys that plog acts on.",
    "ListPartitionReassignments": "What the metadata tells of; plog begins none.",
    "ElectLeaders": "With one broker there is nothing to elect.",
    "DescribeQuorum": "One voter.",
}


class KafkaApi(NamedTuple):
    key: int
    name: str
    versions: str


def kafka_apis() -> list[KafkaApi]:
    """What a broker of Kafka serves clients, by key."""
    found = []
    with zipfile.ZipFile(fetched_libs() / f"kafka-clients-{KAFKA_VERSION}.jar") as archive:
        for path in archive.namelist():
            if not re.fullmatch(r"common/message/\w+Request\.json", path):
                continue
            text = re.sub(r"(?m)^\s*//.*$", "", archive.read(path).decode())
            definition = json.loads(text)
            if "broker" in definition.get("listeners", ()) and definition["validVersions"] != "none":
                name = definition["name"].removesuffix("Request")
                versions = VersionRange.parse(definition["validVersions"])
                last = versions.last - bool(definition.get("latestVersionUnstable"))
                found.append(KafkaApi(definition["apiKey"], name, _text(VersionRange(versions.first, last))))
    return sorted(found)


def _text(versions: VersionRange) -> str:
    return str(versions.first) if versions.first == versions.last else f"{versions.first}-{versions.last}"


def document() -> str:
    served = {api.key: api for api in SERVED_APIS}
    lines = [
        "# The protocol",
        "",
        f"Every API that a broker of Apache Kafka {KAFKA_VERSION} has, and what plog serves of it. What is not served",
        "is not advertised in ApiVersions either. This page is written by `python -m tests.support.protocol_document`;",
        "a test holds it, and all fields of all messages, against Kafka's message definitions.",
        "",
        "| key | API | Kafka | plog | what is left out |",
        "|---|---|---|---|---|",
    ]
    for key, name, versions in kafka_apis():
        api = served.get(key)
        ours = "" if api is None else _text(api.versions)
        note = "not served" if api is None else NOTES.get(name, "")
        lines.append(f"| {key} | {name} | {versions} | {ours} | {note} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PATH.write_text(document())
