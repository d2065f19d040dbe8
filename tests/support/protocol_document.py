"""docs/protocol.md: every API of Kafka's brokers, the versions that plog serves of it, and what it leaves out.

    .venv/bin/python -m tests.support.protocol_document    writes it again

Kafka's side comes from its own message definitions.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import NamedTuple

from core.broker.requests.request_dispatcher import served_apis
from core.protocol.message import VersionRange
from core.protocol.schema.control_request import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from core.protocol.schema.controller_request import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from tests.support.oracle import KAFKA39_VERSION, KAFKA_VERSION, fetched_libs, without_comments
from tests.support.requests import SERVED_APIS

PATH = Path(__file__).parents[2] / "docs" / "protocol.md"

NOTES = {
    "Produce": "Versions 0 to 2 are advertised and refused, as in Kafka. A request has one record batch per partition.",
    "ListOffsets": "There is no tiered storage, so nothing for -4 and -5.",
    "FindCoordinator": "Share groups have no coordinator; groups and transactional ids do.",
    **dict.fromkeys(("DescribeAcls", "CreateAcls", "DeleteAcls"), "Without an authorizer: SECURITY_DISABLED."),
    "UpdateFeatures": "`metadata.version` is never lowered.",
    "ConsumerGroupHeartbeat": "Assignments do not consider racks.",
    "AlterConfigs": "Broker settings that plog does not know are kept, and change nothing.",
    "IncrementalAlterConfigs": "The same as for AlterConfigs.",
    "DescribeConfigs": "For brokers and groups, only the settings that plog acts on are there.",
    "ListPartitionReassignments": "A lone broker has none.",
    "ElectLeaders": "With one broker there is nothing to elect. In a cluster the controller elects, plog or another.",
    "DescribeQuorum": "There is one voter.",
}

BETWEEN_BROKERS = (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    CONTROLLED_SHUTDOWN,
    ALTER_PARTITION,
    ALLOCATE_PRODUCER_IDS,
)
"""What brokers of Kafka 3.9 say to each other. Its definitions are those of `KAFKA39_VERSION`; Kafka 4.3 has no version
of the first four, and fewer of AlterPartition.
"""

_WHO_ASKS = {
    LEADER_AND_ISR.key: "the controller asks plog, from version 5 on (KIP-516)",
    STOP_REPLICA.key: "the controller asks plog, from version 3 on (KIP-570)",
    UPDATE_METADATA.key: "the controller asks plog, from version 7 on (KIP-516)",
    CONTROLLED_SHUTDOWN.key: "plog asks the controller, in version 3, or is asked as the controller",
    ALTER_PARTITION.key: "plog asks the controller, in version 3 (KIP-903), or is asked as the controller",
    ALLOCATE_PRODUCER_IDS.key: "plog asks the controller, in version 0, or is asked as the controller",
}

ANSWERS = """
## Where answers differ from Kafka's

`scripts/compare-with-kafka` sends about six thousand requests, or as many at random as you like, to plog and to Apache
Kafka, and compares the answers field by field; `tests/interop/test_answers.py` compares plog's answers with recorded
ones of Kafka. All differences are listed here and in [validation.md](validation.md), [groups.md](groups.md) and
[transactions.md](transactions.md).

**Errors and messages**

- Error messages have plog's own words, because no client parses them. plog gives an error a message in more places than
  Kafka. A success has no message; Kafka says `NONE` (UpdateFeatures 1, FindCoordinator 1 to 3).
- Where Kafka says UNKNOWN_SERVER_ERROR, or nothing at all until the client gives up, plog names the error:
  - INVALID_REQUEST for an operation of IncrementalAlterConfigs that does not exist, and for Metadata without name and
    id;
  - INVALID_PARTITIONS for too many partitions;
  - INCONSISTENT_GROUP_PROTOCOL for a classic member that has no protocol in common with members of the consumer
    protocol;
  - UNKNOWN_TOPIC_OR_PARTITION for invalid names in DescribeTopicPartitions;
  - INVALID_PRODUCER_EPOCH for a marker of epoch -1, and INVALID_REQUEST for one of a negative transaction version;
  - INVALID_RECORD for null records;
  - UNKNOWN_TOPIC_ID for several partitions of the topic id 0 in a Fetch.

  A JoinGroup that names a protocol twice, an AlterConfigs that names a resource twice, an AddPartitionsToTxn without
  transactions, and a WriteTxnMarkers of several producers, are answered.
- Share groups have no coordinator: the answer is COORDINATOR_NOT_AVAILABLE whatever the key is. Kafka checks the form
  of the key first.

**Requests that no client sends**

- A topic without partitions is repeated in the answer; Kafka leaves it out. Such a topic asks for nothing.
- What a request names twice (a partition in Fetch; a topic in Fetch, ListOffsets and Produce) is answered twice; Kafka
  merges it. If a partition is named twice in ListOffsets, both answers are INVALID_REQUEST. If DeleteTopics names a
  topic by name and by id, both are refused; Kafka answers one.
- A Produce whose records contradict it (records of a transaction, and no transactional id; records of two producers in
  one transaction) is refused for the partitions that these records are for. Kafka refuses all of it. Records of a
  transaction, and of no producer, are INVALID_RECORD; Kafka keeps them, in no transaction.
- If a request makes several mistakes with one topic, partition or resource, plog may name another one of them.
- An empty log begins with the first batch of a producer. One of a later sequence is OUT_OF_ORDER_SEQUENCE_NUMBER,
  because the first, which was refused and is sent again, could not follow it (KAFKA-15591). Kafka takes it unless it is
  of a transaction.
- Fetch names a topic once in its answer. Kafka may name it a second time, for those of its partitions that have errors.
- Numbers that no client sends get the nearest meaning. In a Fetch, a negative limit of bytes counts as 0, and an
  unknown isolation level as read_uncommitted. ListOffsets refuses an unknown isolation level (UNSUPPORTED_VERSION;
  Kafka: an unexpected error). A producer's epoch below 0 is INVALID_PRODUCER_EPOCH; Kafka takes it if the log knows no
  other. A cursor of DescribeTopicPartitions at partition 2147483647 is the end of its topic; Kafka counts on from
  there. A negative rebalance timeout of JoinGroup is the session's; in Kafka it is over before the member can ask for
  its assignment.
- A marker of transaction version 2 that is there already is INVALID_PRODUCER_EPOCH, as soon as it is committed. Kafka
  writes it again.
- A request about more than 50,000 ACLs, filters or users is POLICY_VIOLATION. A DeleteAcls whose filters have to be
  compared with ACLs more than 500,000 times is INVALID_REQUEST; one with a name is compared with ACLs of that name. A
  request that changes ACLs or users may make 4 MB of metadata records, in Kafka 8 MB (RECORD_LIST_TOO_LARGE). The host
  of an ACL may not be a range of addresses with a zone (`fe80::%eth0/64`); Kafka accepts it where the machine has that
  zone.
- The owner of the data directory, who comes by its socket, may change ACLs of a broker without an authorizer. It obeys
  them from its next start on. To all others it says SECURITY_DISABLED, as Kafka does.
- ListOffsets by time knows no record that was deleted (DeleteRecords). If one was deleted in the middle of a segment,
  Kafka may answer with it, or miss a later one.

**Topics**

- Metadata accepts topic ids from version 10 on, which is the first version that has them. Kafka's answer to ids in
  versions 10 and 11 is INVALID_REQUEST, without any broker in it. A request with ids and names is answered for both;
  Kafka ignores the names.
- A topic that Metadata creates is in the same answer. Kafka's first answer is UNKNOWN_TOPIC_OR_PARTITION, because its
  controller creates the topic in the background, and clients must ask again.
- A timeout of 0 or less in CreateTopics is ignored, because the answer is there at once. Kafka answers
  REQUEST_TIMED_OUT, and creates the topic all the same.
- Too many partitions: a request may create 10,000, also of one topic. Kafka refuses one topic with 10,000. Where more
  are added to a topic the answer is INVALID_PARTITIONS, as for any number that can't be; Kafka says POLICY_VIOLATION.
- If the names of two topics in one request collide (`a.b` and `a_b`), the second is refused, as it is in a request of
  its own. Kafka compares only with the topics that exist already.
- If a topic is deleted during a fetch session, its partitions get UNKNOWN_TOPIC_ID from then on. Kafka says
  UNKNOWN_TOPIC_OR_PARTITION, and INCONSISTENT_TOPIC_ID once the name exists again. Clients look up the topic after each
  of these errors.
- Fetch has an empty list of aborted transactions beside an error, where Kafka has null, and beside no records, where
  Kafka may name some. Clients look at neither.

**Settings and features**

- CreateTopics answers with settings as they are understood (`1` for ` 1 `, `true` for `TRUE`, `1.0` for a ratio of
  `1`); Kafka repeats the text. In DescribeConfigs both say what is understood.
- `internal.segment.bytes` must be at least 14, as `segment.bytes` had to be before Kafka 4. It is meant for tests.
- `min.insync.replicas` is an ordinary setting. Kafka 4.4 keeps it among the defaults of all brokers, for the sake of
  eligible leader replicas, and no broker can have its own. With one replica it changes nothing.
- plog's own settings (`plog.*`) are listed as well. For a broker, only the settings that plog acts on are listed.
- A value that its setting does not allow is refused after `listener.name.NAME.`, too, whether there is that listener or
  not, and so is a login module that is none. Kafka takes them, and fails at its next start.
- The sources and synonyms of a few settings differ: `log.dir` counts as set if `log.dirs` is, `node.id` has a default,
  and `segment.ms` names `log.roll.hours`, from which its default comes.
- The features are those that plog has, so there are none for share groups, streams groups and eligible leader replicas.
- The quorum has one voter, this broker, on the listener that clients use. Kafka's voter has a listener of its own.

**Logins**

- A login by SCRAM with a name that nobody has fails at its last message, as one with a wrong password does, so that
  users can't be guessed. Kafka fails at the first message. A delegation token is a name that nobody has.
- SCRAM is that of RFC 5802: names are UTF-8, `c=` must repeat what the client began with, and an extension that must be
  understood (`m=`) fails. Kafka lets in ASCII names alone, and takes the other two.
- librdkafka before 2.6.1 sends its nonce twice, and may; Kafka 4 refuses it.
- After a SaslHandshake another request than SaslAuthenticate is answered with ILLEGAL_SASL_STATE if its answer has a
  place for an error of the whole request, and without an answer otherwise, because plog does not decode it.
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
    members = {api.key: f"Members of a [cluster](cluster.md) serve {_text(v)}." for api, v in served_apis({}).items()}
    lines = [
        "# The protocol",
        "",
        f"This page lists every API that a broker of Apache Kafka {KAFKA_VERSION} has, with the versions that plog",
        "serves, and where plog's answers differ from Kafka's. It is for authors of clients and tools. What is not",
        "served is not advertised in ApiVersions either. `python -m tests.support.protocol_document` writes this page;",
        "a test compares it, and all fields of all messages, with Kafka's message definitions.",
        "",
        "| key | API | Kafka | plog | what is left out |",
        "|---|---|---|---|---|",
    ]
    for key, name, versions in kafka_apis():
        api = served.get(key)
        ours = "" if api is None else _text(api.versions)
        note = members.get(key, "not served") if api is None else NOTES.get(name, "")
        lines.append(f"| {key} | {name} | {versions} | {ours} | {note} |")
    return "\n".join([*lines, *_between_brokers()]) + "\n" + ANSWERS


def _between_brokers() -> list[str]:
    return [
        "",
        "## Between brokers, 3.9",
        "",
        f"The brokers of an Apache Kafka {KAFKA39_VERSION} cluster with ZooKeeper also say these to each other; the",
        "versions are those that plog can read and write. As a member of a [cluster](cluster.md) plog serves what the",
        "controller sends, and what the controller is asked, as it may be that itself: on the listener for brokers",
        "(`inter.broker.listener.name`) alone. No client needs any, and a broker of",
        "its own neither serves nor advertises them. A member advertises to clients the requests that Kafka 3.9 does",
        "where ZooKeeper is: none about a quorum, and none of groups of the consumer protocol until the cluster has",
        "finalized [this feature](cluster.md#features). Two more are served that Kafka knows in KRaft alone: by",
        "DescribeTopicPartitions (75) the controller tells what partitions wait for, by UnregisterBroker (64) it hears",
        "that a broker is gone for good ([ADR 25](adr/0025-who-may-lead-after-a-crash.md)).",
        "",
        "| key | API | versions | in a cluster |",
        "|---|---|---|---|",
        *(f"| {api.key} | {api.name} | {_text(api.versions)} | {_WHO_ASKS[api.key]} |" for api in BETWEEN_BROKERS),
    ]


if __name__ == "__main__":
    PATH.write_text(document())
