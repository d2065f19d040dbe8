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
from tests.support.oracle import KAFKA_VERSION, fetched_libs, without_comments

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

ANSWERS = """
## Where answers differ from Kafka's

`scripts/compare-with-kafka` puts some six thousand requests to plog and to Apache Kafka and compares the answers
field by field; `tests/interop/test_answers.py` does so with recorded answers of Kafka's. What differs is here, and in
[validation.md](validation.md), [groups.md](groups.md) and [transactions.md](transactions.md).

- Messages are plog's own words, as no client reads them. An error has one in more places than with Kafka. What
  succeeded has none, where Kafka says `NONE` (UpdateFeatures 1, FindCoordinator 1 to 3).
- Where Kafka says UNKNOWN_SERVER_ERROR, or nothing at all until the client gives up, plog names the error:
  INVALID_REQUEST for an operation of IncrementalAlterConfigs that does not exist and for Metadata without name and
  id; INVALID_PARTITIONS beyond the limit; INCONSISTENT_GROUP_PROTOCOL for a classic member that has no protocol in
  common with consumers; UNKNOWN_TOPIC_OR_PARTITION for invalid names in DescribeTopicPartitions;
  INVALID_PRODUCER_EPOCH for a marker of epoch -1; INVALID_RECORD for null records. A JoinGroup that names a protocol
  twice is answered, and so is AddPartitionsToTxn without transactions.
- A topic without partitions is repeated in the answer, where Kafka leaves it out: it asks for nothing.
- What a request names twice (a partition of Fetch, a topic of Fetch, ListOffsets and Produce) is answered as often as
  it is named; Kafka merges it. In ListOffsets both places of a partition named twice say INVALID_REQUEST.
  DeleteTopics that names a topic by name and by id refuses both places; Kafka tells one. No client asks so.
- Fetch has an empty list of aborted transactions beside an error, where Kafka has null: readers look at neither.
- Metadata takes ids from version 10 on, in which they appear; Kafka's answer to versions 10 and 11 is INVALID_REQUEST
  without any broker in it. A request with ids and names is answered for both; Kafka passes over the names.
- A topic that Metadata creates is there in the same answer. Kafka's first answer says UNKNOWN_TOPIC_OR_PARTITION, as
  its controller is asked in the background, and clients must ask again.
- A timeout of 0 or less is not waited for in CreateTopics, as the answer is there at once; Kafka says
  REQUEST_TIMED_OUT, and creates the topic all the same.
- Too many partitions: a request may make 10,000, of one topic too; Kafka refuses one topic of 10,000.
- Two topics of one request whose names collide (`a.b` and `a_b`) are not both created: the second is refused, as it
  is in a request of its own. Kafka looks only at the topics that are there already.
- CreateTopics tells configs as they are understood (`1` for ` 1 `, `true` for `TRUE`, `1.0` for a ratio of `1`);
  Kafka repeats the text. DescribeConfigs of both tells what is understood.
- `internal.segment.bytes` has a least value of 14, as `segment.bytes` had before Kafka 4; it is there for tests.
- `min.insync.replicas` is an ordinary config. Kafka 4.3 keeps it among the defaults of all brokers, for the sake of
  eligible leader replicas, and lets no broker have its own; with one replica it changes nothing.
- Configs of plog's own (`plog.*`) are told as well. Of a broker, those are told that plog acts on.
- Sources and synonyms of a few configs differ: `log.dir` is told to be set wherever `log.dirs` is, `node.id` has a
  default, and `segment.ms` names `log.roll.hours`, from which its default comes.
- Features are those that plog has: nothing of share groups, streams groups and eligible leader replicas. ApiVersions
  3 lists the supported ones whose least level is 0, too; Kafka leaves them out for old clients that stumbled over
  that.
- DescribeTopicPartitions tells no operations of a topic that is not there; Kafka tells all of them.
- A Fetch of a replica is answered as a consumer's. There is no other replica, so none has to be told
  NOT_LEADER_OR_FOLLOWER.
- Numbers that no client sends are read in the nearest sense: in a Fetch a negative limit of bytes as 0, and an unknown
  isolation level as read_uncommitted, which ListOffsets refuses (UNSUPPORTED_VERSION; Kafka: an unexpected error). The
  leader epoch -2 of a Fetch is older than any (FENCED_LEADER_EPOCH); Kafka takes it for none.
- A topic that is deleted under a fetch session is an UNKNOWN_TOPIC_ID from then on; Kafka's says
  UNKNOWN_TOPIC_OR_PARTITION, and INCONSISTENT_TOPIC_ID when the name is there again. Clients look up the topic for
  each.
- The quorum is one voter, this broker, on the listener that clients use; Kafka's voter has a listener of its own.
- Share groups have no coordinator: COORDINATOR_NOT_AVAILABLE whatever the key; Kafka looks at the form of the key
  first.
"""
"""What the second part of the page says. `tests/support/answers/known_differences.py` points at it."""


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
            definition = json.loads(without_comments(archive.read(path).decode()))
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
    return "\n".join(lines) + "\n" + ANSWERS


if __name__ == "__main__":
    PATH.write_text(document())
