"""The differences that are meant, each with its reason: a sentence of the documents.

`tests/interop/test_answers.py` fails for a difference that no entry explains, for an entry that explains nothing in one
of its scenarios, and for a reason that the document does not give.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple

from tests.support.answers.comparison import ABSENT, Difference


class Reason(NamedTuple):
    """`text` is the start of the paragraph in docs/`document`."""

    document: str
    text: str


WORDS = Reason("protocol.md", "Error messages have plog's own words")
SURPRISES = Reason("protocol.md", "Where Kafka says UNKNOWN_SERVER_ERROR, or nothing")
ASKS_FOR_NOTHING = Reason("protocol.md", "A topic without partitions is repeated in the answer")
TWICE = Reason("protocol.md", "What a request names twice")
ANOTHER_MISTAKE = Reason("protocol.md", "If a request makes several mistakes")
EMPTY_LOG = Reason("protocol.md", "An empty log begins with the first batch of a producer")
REFUSED_ALONE = Reason("protocol.md", "A Produce whose records contradict it")
NO_NULL_LIST = Reason("protocol.md", "Fetch has an empty list of aborted transactions beside an error")
IDS = Reason("protocol.md", "Metadata accepts topic ids from version 10 on")
CREATED_AT_ONCE = Reason("protocol.md", "A topic that Metadata creates is in the same answer")
TIMEOUTS = Reason("protocol.md", "A timeout of 0 or less in CreateTopics is ignored")
MANY_PARTITIONS = Reason("protocol.md", "Too many partitions")
COLLISIONS = Reason("protocol.md", "If the names of two topics in one request collide")
AS_PARSED = Reason("protocol.md", "CreateTopics answers with settings as they are understood")
INTERNAL_SEGMENT = Reason("protocol.md", "`internal.segment.bytes` must be at least 14")
IN_SYNC = Reason("protocol.md", "`min.insync.replicas` is an ordinary setting")
OWN_CONFIGS = Reason("protocol.md", "plog's own settings (`plog.*`) are listed")
OF_ONE_LISTENER = Reason("protocol.md", "A value that its setting does not allow is refused after")
CONFIG_SOURCES = Reason("protocol.md", "The sources and synonyms")
FEATURES = Reason("protocol.md", "The features are those that plog has")
MARKED_ALREADY = Reason("protocol.md", "A marker of transaction version 2 that is there already")
DELETED_RECORDS = Reason("protocol.md", "ListOffsets by time knows no record that was deleted")
ODD_NUMBERS = Reason("protocol.md", "Numbers that no client sends")
DELETED_IN_SESSION = Reason("protocol.md", "If a topic is deleted during a fetch session")
QUORUM = Reason("protocol.md", "The quorum has one voter")
SHARE_KEYS = Reason("protocol.md", "Share groups have no coordinator")
RECORDS_LEFT_ALONE = Reason("validation.md", "the records of an ordinary topic")
NOT_DECOMPRESSED = Reason("validation.md", "records that do not decompress")
LENGTHS_INSIDE = Reason("validation.md", "a compressed record that ends elsewhere")
ONE_BATCH = Reason("validation.md", "one whole batch for each partition")
HEADER_CODES = Reason("validation.md", "which error a broken header gets")
BAD_RECORDS = Reason("validation.md", "which records are bad")
REWRITTEN_HEADERS = Reason("validation.md", "base offset, and the bit of the timestamp's type")
LEFT_BEHIND = Reason("groups.md", "A JoinGroup that is refused leaves no group behind")
GROUP_EPOCHS = Reason("groups.md", "The epochs of a group")
REGEX_AT_ONCE = Reason("groups.md", "Topics of a regular expression are looked up")


@dataclass(frozen=True)
class Known:
    """Patterns of regular expressions, all of which must be found; `plog` and `kafka` in the JSON of a value."""

    reason: Reason
    scenarios: tuple[str, ...]
    api: str = ""
    step: str = ""
    path: str = ""
    plog: str = ""
    kafka: str = ""
    version: str = ""

    def explains(self, scenario: str, difference: Difference) -> bool:
        return (
            scenario in self.scenarios
            and bool(re.search(self.api, difference.step.api))
            and bool(re.search(self.version, str(difference.step.version)))
            and bool(re.search(self.step, difference.step.name))
            and bool(re.search(self.path, difference.path))
            and bool(re.search(self.plog, json.dumps(difference.plog, ensure_ascii=False)))
            and bool(re.search(self.kafka, json.dumps(difference.kafka, ensure_ascii=False)))
        )


AT_RANDOM = "random-requests"
"""The scenario of them: what a seed meets is chance, so that an entry may explain nothing in it."""


def _at_random(
    reason: Reason, apis: str, path: str, plog: str, kafka: str, *, step: str = "", version: str = ""
) -> Known:
    """An entry of that scenario says which APIs, fields and values it is about: it would hide faults else."""
    return Known(reason, (AT_RANDOM,), f"^({apis})$", step, path, plog, kafka, version)


_OF_A_RECORD = r"\.(Offset|Timestamp|LeaderEpoch)$"
_NOTHING = f'^(null|-1|""|\\[\\]|"{ABSENT}")$'
_SOME = '^"<message>"$'
_MISSING = f'^"{ABSENT}"$'
_FAILED = f'^(-1|-2147483648|false|null|"0{{32}}"|"{ABSENT}")$|"ErrorCode": -1'
"""What is left of an answer that failed altogether."""
_ID_0_AND_MORE = r'(?=.*"TopicId": "0{32}", "Partitions": \[\{)(.*"Partition": ){2}'
_NO_SUCH_OPERATION = r'"ConfigOperation": (-|[4-9]|\d\d)'
_NO_SUCH_NUMBER = r'Bytes": -|"IsolationLevel": ([2-9]|\d\d|-)'

KNOWN = (
    Known(
        WORDS,
        (
            "create-partitions", "describe-producers", "describe-topic-configs", "find-coordinator", "groups-listed",
            "idempotent-producers", "idempotent-sequences", "produce-broken-headers", "produce-broken-counts",
            "produce-broken-records", "produce-sizes", "produce-versions", "transactions-of-old-clients",
            "transactions-of-new-clients", "fenced-producers", "change-topic-configs", "classic-group-of-one",
            "consumer-group-of-one", "classic-group-limits",
        ),
        path="Message$",
        plog=_SOME,
        kafka='^(null|"")$',
    ),
    Known(
        WORDS,
        ("find-coordinator", "features", "cluster", "requests-with-defaults"),
        path="Message$",
        plog='^(null|"")$',
        kafka=_SOME,
    ),
    Known(SURPRISES, ("change-topic-configs",), step="^operation (4|-1)$", path="ErrorCode", plog="42", kafka="^-1$"),
    Known(
        SURPRISES,
        ("describe-topic-partitions",),
        step="^invalid$",
        path="ErrorCode|AuthorizedOperations",
        plog="3",
        kafka="^-(1|2147483648)$",
    ),
    Known(SURPRISES, ("metadata-by-id",), step="no id, no name"),
    Known(SURPRISES, ("fetch-several-partitions",), step="^of no topic$"),
    Known(SURPRISES, ("transaction-markers",), step="epoch -1", plog="47", kafka="^-1$"),
    Known(MARKED_ALREADY, ("transaction-markers",), step="epoch 3 again", plog="47", kafka="^0$"),
    Known(SURPRISES, ("transaction-markers",), step="transaction version", plog="42", kafka="^-1$"),
    Known(SURPRISES, ("classic-group-limits",), step="a protocol twice", kafka="no answer"),
    Known(SURPRISES, ("produce-versions",), step="^null$", plog="87", kafka="no answer"),
    Known(
        SURPRISES,
        ("requests-with-defaults", "requests-with-nulls"),
        step="^(defaults|V3AndBelow)",
        plog="ResultsByTransaction",
        kafka="no answer",
    ),
    Known(
        ASKS_FOR_NOTHING,
        ("commit-offsets", "delete-offsets", "fetch-several-partitions", "produce-versions", "transaction-markers"),
        step="^no partitions$",
        kafka=_MISSING,
    ),
    Known(
        TWICE,
        ("fetch-several-partitions", "list-offsets", "produce-versions"),
        step="^a (partition|topic) twice$",
        path=r"(Responses|Topics)\[.*\]",
    ),
    Known(TWICE, ("delete-topics",), step="one by name and by id"),
    Known(
        NO_NULL_LIST,
        (
            "fetch-one-partition", "fetch-several-partitions", "fetch-sessions", "fetch-sessions-of-deleted-topics",
            "delete-records",
        ),
        path="AbortedTransactions$",
        plog=r"^\[\]$",
        kafka="^null$",
    ),
    Known(IDS, ("metadata-by-id",), step="^(one|two|unknown|id 1)( twice| by id and one by name)?$"),
    Known(CREATED_AT_ONCE, ("metadata-creates-topics",), step="is asked for first", plog="^0$", kafka="^3$"),
    Known(TIMEOUTS, ("create-topics-numbers",), step="^timeout (0|-1)$"),
    Known(MANY_PARTITIONS, ("create-topics-numbers",), step="^10000 partitions$"),
    Known(MANY_PARTITIONS, ("create-partitions",), step="^(10003|2147483647)$", plog="37", kafka="^44$"),
    Known(COLLISIONS, ("create-topics-names",), step="^two that collide$", path="collide_b"),
    Known(AS_PARSED, ("values-of-topic-configs",), plog=r'^\["', kafka=r'^\["( |TRUE|0|1)'),
    Known(INTERNAL_SEGMENT, ("values-of-topic-configs",), step="^internal.segment.bytes$", plog="40"),
    Known(IN_SYNC, ("describe-topic-configs", "create-topics-numbers"), path=r"\[min.insync.replicas\]"),
    Known(IN_SYNC, ("change-broker-configs",), step="min.insync.replicas=1", kafka='40|"<message>"'),
    Known(OWN_CONFIGS, ("describe-topic-configs", "create-topics-numbers"), path=r"\[plog\.", kafka=_MISSING),
    Known(
        OWN_CONFIGS,
        ("describe-broker-configs",),
        path=r"\[(num.io.threads|consumer.assignor.offload.enable)\]$",
        plog=_MISSING,
    ),
    Known(
        OF_ONE_LISTENER,
        ("change-listener-configs",),
        step=r"^its own, listener\.name\.nope\..*=(x|maybe)$",
        plog='42|"<message>"',
        kafka="0|null",
    ),
    Known(
        CONFIG_SOURCES,
        ("describe-topic-configs",),
        path=r"Synonyms\[log.(roll|flush|retention)",
        kafka=_MISSING,
    ),
    Known(CONFIG_SOURCES, ("describe-broker-configs",), path=r"\[node.id\]|\[log.dir\]"),
    Known(FEATURES, ("api-versions",), path="Features"),
    Known(ODD_NUMBERS, ("fetch-one-partition",), step="bytes -1|^both -1|isolation level"),
    Known(ODD_NUMBERS, ("list-offsets",), step="^isolation level"),
    Known(DELETED_IN_SESSION, ("fetch-sessions-of-deleted-topics",), path="ErrorCode$", plog="100", kafka="^(3|103)$"),
    Known(QUORUM, ("cluster", "requests-with-defaults"), path=r"Nodes|ReplicaDirectoryId"),
    Known(SHARE_KEYS, ("find-coordinator",), step="^type 2", path="ErrorCode$", plog="15", kafka="42"),
    Known(
        RECORDS_LEFT_ALONE,
        ("produce-broken-records", "produce-broken-counts"),
        plog='^(0|"<offset>"|null)$',
        kafka='^(-1|87|"<message>")$',
    ),
    Known(NOT_DECOMPRESSED, ("produce-broken-records",), path="ErrorCode$", plog="87", kafka="-1"),
    Known(
        LENGTHS_INSIDE,
        ("produce-broken-records",),
        step="^record length .*gzip",
        plog="^(87|-1)$",
        kafka='^(0|"<offset>")$',
    ),
    Known(
        ONE_BATCH,
        ("produce-broken-headers",),
        step="bytes after it$|^the first|^length|^attributes 64$",
        path=r"\[0\]\.(ErrorCode|BaseOffset|LogStartOffset)$",
    ),
    Known(ONE_BATCH, ("produce-versions",), step="^empty$", path="ErrorCode", plog="2", kafka="87"),
    Known(HEADER_CODES, ("produce-broken-headers",), step="^codec [567]$|^magic [01] in", path="ErrorCode$|Start"),
    Known(BAD_RECORDS, ("produce-timestamps",), step="^before 0: one of three is in the future", path="RecordErrors"),
    Known(REWRITTEN_HEADERS, ("produce-broken-headers",), step="^base offset"),
    Known(REWRITTEN_HEADERS, ("produce-attributes",), path="Attributes$", plog="8", kafka="0"),
    Known(REWRITTEN_HEADERS, ("produce-timestamps",), step="append time: the bit|append time, gzip: (the bit|-2)"),
    Known(GROUP_EPOCHS, ("administrator-removes-consumers",), path="Epoch$"),
    Known(LEFT_BEHIND, ("classic-group-limits",), step="what was refused", path="ErrorCode$", plog="^69$", kafka="^0$"),
    Known(EMPTY_LOG, ("idempotent-producers",), step="^an empty log", path="ErrorCode$|BaseOffset$"),
    Known(ODD_NUMBERS, ("idempotent-producers",), step="^epoch -1$", path="ErrorCode$|BaseOffset$"),
    Known(REFUSED_ALONE, ("contradicting-produce-requests",)),
    Known(DELETED_RECORDS, ("delete-records",), step="^timestamp -3 then$", path=_OF_A_RECORD),
    Known(ODD_NUMBERS, ("describe-topic-partitions",), step="-2147483647,"),
    Known(REGEX_AT_ONCE, ("consumer-group-by-regex",), step="joins", path="Assignment"),
    _at_random(
        WORDS,
        "ConsumerGroupDescribe|CreatePartitions|DeleteGroups|DescribeConfigs|DescribeProducers|FindCoordinator|Produce",
        r"\]\.ErrorMessage$",
        _SOME,
        '^(null|"")$',
    ),
    _at_random(WORDS, "FindCoordinator", "^ErrorMessage$", '^""$', _SOME),
    _at_random(WORDS, "UpdateFeatures", r"^Results\[.*\]\.ErrorMessage$", "^null$", _SOME, version="^1$"),
    _at_random(SURPRISES, "Fetch", "^ErrorCode$", "^0$", "^-1$", step=_ID_0_AND_MORE),
    _at_random(SURPRISES, "Fetch", r"^Responses\[[^]]*\]$", "", _MISSING, step=_ID_0_AND_MORE),
    _at_random(SURPRISES, "Fetch", "^SessionId$", "", "", step=_ID_0_AND_MORE),
    _at_random(SURPRISES, "WriteTxnMarkers", r"\]\.ErrorCode$", "^47$", "^-1$", step='"ProducerEpoch": -'),
    _at_random(SURPRISES, "AddPartitionsToTxn", "^$", "", '^"no answer"$', step=r' \{"Transactions": (\[\]|null)'),
    _at_random(SURPRISES, "WriteTxnMarkers", "^$", "", '^"no answer"$', step=r'("ProducerEpoch": .*){2}|": \[\]'),
    _at_random(
        SURPRISES, "DescribeTopicPartitions", r"^Topics\[|^NextCursor$", "", _FAILED, step='"Name": "(|é|a b|x{60})"',
    ),
    _at_random(SURPRISES, "IncrementalAlterConfigs", r"\]\.ErrorCode$", "", "^-1$", step=_NO_SUCH_OPERATION),
    _at_random(SURPRISES, "IncrementalAlterConfigs", r"\]\.ErrorMessage$", _SOME, "^null$", step=_NO_SUCH_OPERATION),
    _at_random(SURPRISES, "AlterConfigs", "^$", '^{"Responses"', '^"no answer"$', step=r"^\S+ twice"),
    _at_random(SURPRISES, "Metadata", "", "", _FAILED, step='"TopicId": "0{32}", "Name": null'),
    _at_random(
        ASKS_FOR_NOTHING,
        "DeleteRecords|Fetch|ListOffsets|OffsetCommit|OffsetDelete|Produce|TxnOffsetCommit",
        r"^(Responses|Topics)\[[^]]*\]$",
        r'^\{"(Name|Topic|TopicId)": "[^"]*", "Partition(s|Responses)": \[\]\}$',
        _MISSING,
    ),
    _at_random(
        ASKS_FOR_NOTHING,
        "AddPartitionsToTxn",
        r"\bTopicResults\[[^]]*\]$|^ResultsByTopicV3AndBelow\[[^]]*\]$",
        r'^\{"Name": "[^"]*", "ResultsByPartition": \[\]\}$',
        _MISSING,
    ),
    _at_random(
        ASKS_FOR_NOTHING,
        "WriteTxnMarkers",
        r"^Markers\[[^]]*\](\.Topics\[[^]]*\])?$",
        r'^\{("ProducerId": "\d+", "Topics": \[)?(\{?"Name": "[^"]*", "Partitions": \[\]\}(, )?)*(\]\})?$',
        _MISSING,
    ),
    _at_random(TWICE, "Fetch", r"\]\.Records$", '^""$', '^\\{"batches"', step=r"^\S+ twice"),
    _at_random(TWICE, "Fetch", r"\.Partitions\[-?\d+\]$", '^\\{"PartitionIndex"', _MISSING, step=r"^\S+ twice"),
    _at_random(
        IN_SYNC, "AlterConfigs", r"^Responses\[.*\]\.Error(Code|Message)$", "^(0|null)$", '^40$|"<message>"',
        step='"ResourceName": ""',
    ),
    _at_random(IN_SYNC, "CreateTopics|DescribeConfigs", r"\]\.Configs\[min.insync.replicas\]", "", ""),
    _at_random(NO_NULL_LIST, "Fetch", r"\.AbortedTransactions$", r"^\[\]$", "^null$"),
    _at_random(NO_NULL_LIST, "Fetch", r"\.AbortedTransactions\[", _MISSING, ""),
    _at_random(OWN_CONFIGS, "CreateTopics|DescribeConfigs", r"\]\.Configs\[plog\.[a-z.]+\]$", "", _MISSING),
    _at_random(OWN_CONFIGS, "DescribeConfigs", r"^Results\[.*\]\.Configs\[background.threads\]$", _MISSING, ""),
    _at_random(CONFIG_SOURCES, "DescribeConfigs", r"Synonyms\[log.(roll|flush|retention)[a-z.]*\]$", "", _MISSING),
    _at_random(CONFIG_SOURCES, "DescribeConfigs", r"Synonyms\[log.retention[a-z.]*\]$", _MISSING, ""),
    _at_random(
        IDS,
        "Metadata",
        r"^(Brokers\[.*\]|Cluster\w+|ControllerId|Topics\[[^]]*\]\.(ErrorCode|TopicId|Partitions\[\d+\]|Topic\w+))$",
        "",
        f"^42$|{_FAILED}",
        step='"TopicId": "[<af]',
        version="^1[01]$",
    ),
    _at_random(IDS, "Metadata", r"^Topics\[[^]]*\]$", "", _MISSING, step='"TopicId": "[<af]'),
    _at_random(
        CREATED_AT_ONCE,
        "Metadata",
        r"^Topics\[[^]]*\]\.(ErrorCode|TopicId|Partitions\[\d+\]|TopicAuthorizedOperations)$",
        r'^(0|3576|"<.*>"|\{"ErrorCode": 0.*)$',
        f'^(3|-2147483648|"0{{32}}"|"{ABSENT}")$',
        step='^(?!.*"AllowAutoTopicCreation": false)',
    ),
    _at_random(
        ODD_NUMBERS,
        "Fetch",
        r"^ErrorCode$|^Responses\[[^]]*\](\.Partitions\[-?\d+\]\.(ErrorCode|HighWatermark|L\w+Offset|A\w+s|Records))?$",
        "",
        f'^(-1|""|\\[\\]|"{ABSENT}")$|^{{"batches"',
        step=_NO_SUCH_NUMBER,
    ),
    _at_random(ODD_NUMBERS, "Fetch", "^SessionId$", "", "", step=_NO_SUCH_NUMBER),
    _at_random(ODD_NUMBERS, "ListOffsets", r"\]\.ErrorCode$", "^(35|42)$", "^-1$", step=_NO_SUCH_NUMBER),
    _at_random(
        ODD_NUMBERS, "DescribeTopicPartitions", "", "", "", step='"Cursor".*"PartitionIndex": 2147483647',
    ),
    _at_random(ANOTHER_MISTAKE, "IncrementalAlterConfigs", r"^Responses\[.*\]\.ErrorCode$", "^(17|42)$", "^40$"),
    _at_random(LEFT_BEHIND, "DeleteGroups", r"^Results\[.*\]\.ErrorCode$", "^69$", "^0$"),
    _at_random(
        LEFT_BEHIND,
        "DescribeGroups",
        r"^Groups\[.*\]\.(AuthorizedOperations|ErrorCode|ErrorMessage|GroupState)$",
        '^(-2147483648|69|"<message>"|"Dead")$',
        '^(3400|0|null|"Empty")$',
    ),
    _at_random(ONE_BATCH, "Produce", r"\]\.ErrorCode$", "^2$", "^87$"),
    _at_random(REFUSED_ALONE, "Produce", r"\]\.ErrorCode$", "", "^(49|53)$"),
    _at_random(
        DELETED_RECORDS, "ListOffsets", _OF_A_RECORD, "", "",
        step=r'^\S+ (twice )?after DeleteRecords .*"Timestamp": (-3|\d)',
    ),
    _at_random(SHARE_KEYS, "FindCoordinator", "ErrorCode$", "^15$", "^42$", step='"KeyType": 2'),
    _at_random(MANY_PARTITIONS, "CreatePartitions", r"^Results\[.*\]\.ErrorCode$", "^37$", "^44$"),
)  # fmt: skip


def find_known(scenario: str, difference: Difference) -> Known | None:
    """The first entry that explains it."""
    return next((known for known in KNOWN if known.explains(scenario, difference)), None)
