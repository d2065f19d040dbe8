"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, and what is told of transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.answers.asked_broker import AskedBroker, Topic, fetch_fields, produce_fields
from tests.support.answers.message_codec import Fields
from tests.support.answers.record_batches import TRANSACTIONAL, Record, batch
from tests.support.answers.scenarios.offsets import committed
from tests.support.answers.scenarios.registry import scenario
from tests.support.waiting import wait_until

CONCURRENT_TRANSACTIONS = 51
READ_COMMITTED = 1
_ONE = (Record(b"k", b"v"),)


class TransactionalProducer:
    """A transactional id with the producer id and epoch that it was given last."""

    def __init__(self, broker: AskedBroker, name: str, step: str = "") -> None:
        self._broker = broker
        self.name = name
        self._prefix = f"{step}: " if step else ""
        self.producer_id = self.epoch = -1

    def begin_again(self, step: str, version: int = 5, **options: Any) -> None:
        """InitProducerId, as often as the last transaction is still being ended; the last answer is the step's."""
        fields = init_fields(self.name, **options)

        def is_ended() -> bool:
            found = self._broker.query("InitProducerId", version, **fields)
            if found["ErrorCode"] == CONCURRENT_TRANSACTIONS:
                return False
            self.producer_id, self.epoch = found["ProducerId"], found["ProducerEpoch"]
            self._broker.keep(f"{self._prefix}{step}", found, "InitProducerId", version)
            return True

        wait_until(is_ended)

    def add(
        self,
        step: str,
        *topics: tuple[str, Sequence[int]],
        version: int = 3,
        verify: bool = False,
        **options: Any,
    ) -> None:
        name, producer, epoch = self._who(options)
        listed = [{"Name": topic, "Partitions": list(partitions)} for topic, partitions in topics]
        one = {"TransactionalId": name, "ProducerId": producer, "ProducerEpoch": epoch, "VerifyOnly": verify}
        fields = {
            "V3AndBelowTransactionalId": name,
            "V3AndBelowProducerId": producer,
            "V3AndBelowProducerEpoch": epoch,
            "V3AndBelowTopics": listed,
            "Transactions": [{**one, "Topics": listed}],
        }
        self._broker.ask(self._prefix + step, "AddPartitionsToTxn", version, **fields)

    def add_offsets(self, step: str, group: str, *, version: int = 4, **options: Any) -> None:
        name, producer, epoch = self._who(options)
        fields = {"TransactionalId": name, "ProducerId": producer, "ProducerEpoch": epoch, "GroupId": group}
        self._broker.ask(self._prefix + step, "AddOffsetsToTxn", version, **fields)

    def commit_offsets(
        self, step: str, group: str, topic: str, *offsets: Fields, version: int = 5, **options: Any
    ) -> None:
        name, producer, epoch = self._who(options)
        fields = {
            "TransactionalId": name,
            "GroupId": group,
            "ProducerId": producer,
            "ProducerEpoch": epoch,
            "GenerationIdOrMemberEpoch": options.get("generation", -1),
            "MemberId": options.get("member", ""),
            "Topics": [{"Name": topic, "Partitions": list(offsets)}],
        }
        self._broker.ask(self._prefix + step, "TxnOffsetCommit", version, **fields)

    def write(
        self, step: str, topic: Topic, sequence: int, *, partition: int = 0, version: int = 13, **options: Any
    ) -> None:
        """`transactional_id` is what the request says in place of its own."""
        _, producer, epoch = self._who(options)
        attributes = options.get("attributes", TRANSACTIONAL)
        records = batch(_ONE, attributes=attributes, producer=(producer, epoch), sequence=sequence)
        transactional_id = options.get("transactional_id", self.name)
        fields = produce_fields(topic, records, partition, transactional_id=transactional_id)
        self._broker.ask(self._prefix + step, "Produce", version, **fields)

    def end(self, step: str, *, committed: bool, version: int = 5, **options: Any) -> Any:
        """A right one raises the epoch, from version 5 on."""
        name, producer, epoch = self._who(options)
        fields = {"TransactionalId": name, "ProducerId": producer, "ProducerEpoch": epoch, "Committed": committed}
        answer = self._broker.ask(self._prefix + step, "EndTxn", version, **fields)
        if isinstance(answer, dict) and answer["ErrorCode"] == 0 and version >= 5 and not options:
            self.producer_id, self.epoch = answer["ProducerId"], answer["ProducerEpoch"]
        return answer

    def wait_until_ended(self) -> None:
        """Until the markers are written."""
        wait_until(lambda: self._state() not in ("PrepareCommit", "PrepareAbort"))

    def _state(self) -> Any:
        found = self._broker.query("DescribeTransactions", TransactionalIds=[self.name])
        return found["TransactionStates"][0]["TransactionState"]

    def describe(self, step: str) -> None:
        self._broker.ask(self._prefix + step, "DescribeTransactions", TransactionalIds=[self.name])

    def read(self, step: str, topic: Topic, partition: int = 0) -> None:
        """What readers of committed records get."""
        fields = fetch_fields(topic, 0, partition, isolation_level=READ_COMMITTED)
        self._broker.ask(self._prefix + step, "Fetch", **fields)

    def _who(self, options: dict[str, Any]) -> tuple[str, int, int]:
        """Its own id and epoch but for what is given: `name`, `producer_id`, `epoch`."""
        return (
            options.get("name", self.name),
            options.get("producer_id", self.producer_id),
            options.get("epoch", self.epoch),
        )


def init_fields(name: str | None, **options: Any) -> Fields:
    return {
        "TransactionalId": name,
        "TransactionTimeoutMs": options.get("timeout_ms", 60_000),
        "ProducerId": options.get("producer_id", -1),
        "ProducerEpoch": options.get("epoch", -1),
    }


@scenario
def init_producer(broker: AskedBroker) -> None:
    for version in range(6):

        def ask(step: str, name: str | None, version: int = version, **options: Any) -> Fields:
            answer: Fields = broker.ask(step, "InitProducerId", version, **init_fields(name, **options))
            return answer

        own = f"init-{version}"
        ask("no id", None)
        ask("an empty id", "")
        ask("a new id", own)
        ask("again", own)
        for timeout_ms in (-1, 0, 1, 900_000, 900_001, 2**31 - 1):
            ask(f"timeout {timeout_ms}", f"init-{version}-{timeout_ms}", timeout_ms=timeout_ms)
            ask(f"timeout {timeout_ms}, no id", None, timeout_ms=timeout_ms)
        mine = ask("again and again", own)
        producer_id, epoch = mine["ProducerId"], mine["ProducerEpoch"]
        for step, name, options in (
            ("with its epoch", own, {"producer_id": producer_id, "epoch": epoch}),
            ("with its epoch again", own, {"producer_id": producer_id, "epoch": epoch}),
            ("with an old epoch", own, {"producer_id": producer_id, "epoch": 0}),
            ("with a later epoch", own, {"producer_id": producer_id, "epoch": epoch + 5}),
            ("with another producer id", own, {"producer_id": producer_id + 1000, "epoch": 0}),
            ("with a producer id alone", own, {"producer_id": producer_id}),
            ("with an epoch alone", own, {"epoch": 3}),
            ("with an epoch alone, -2", own, {"epoch": -2}),
            ("with id and epoch -2", own, {"producer_id": -2, "epoch": -2}),
            ("unknown, with both", f"init-unknown-{version}", {"producer_id": producer_id, "epoch": epoch}),
            ("no id, with both", None, {"producer_id": producer_id, "epoch": epoch}),
            ("a long id", "x" * 300, {}),
            ("an odd id", "a b/é", {}),
        ):
            ask(step, name, **options)
    asked = ["init-5", "init-none", "", "init-5"]
    broker.ask("several", "DescribeTransactions", TransactionalIds=asked)
    broker.ask("none", "DescribeTransactions", TransactionalIds=[])


@scenario
def transactions_of_old_clients(broker: AskedBroker) -> None:
    """AddPartitionsToTxn before the first records (clients before KIP-890)."""
    topic, offsets = broker.create_topic("old-transactions", 3), broker.create_topic("old-transactions-offsets", 4)
    for add_version, produce_version, end_version in ((0, 3, 0), (3, 9, 3), (3, 11, 4)):
        producer = TransactionalProducer(broker, f"old-{produce_version}", f"produce {produce_version}")
        producer.begin_again("begins", 4)
        epoch, producer_id = producer.epoch, producer.producer_id

        def write(
            step: str,
            sequence: int,
            producer: TransactionalProducer = producer,
            version: int = produce_version,
            **options: Any,
        ) -> None:
            producer.write(step, topic, sequence, version=version, **options)

        def add(
            step: str,
            *topics: tuple[str, Sequence[int]],
            producer: TransactionalProducer = producer,
            version: int = add_version,
            **options: Any,
        ) -> None:
            producer.add(step, *(topics or ((topic.name, (0,)),)), version=version, **options)

        def end(
            step: str,
            producer: TransactionalProducer = producer,
            version: int = end_version,
            committed: bool = True,
            **options: Any,
        ) -> None:
            producer.end(step, committed=committed, version=version, **options)

        write("writes before it adds", 0)
        end("ends nothing")
        producer.add("adds nothing", version=add_version)
        producer.describe("is described with nothing")
        end("commits nothing")
        producer.wait_until_ended()
        add("adds")
        add("adds again")
        write("writes", 0)
        write("writes on", 1)
        write("writes to another partition", 0, partition=1)
        write("writes no transactional batch", 2, attributes=0)
        write("writes as another id", 2, transactional_id="old-other")
        write("writes without an id", 2, transactional_id=None)
        write("writes with an old epoch", 2, epoch=epoch - 1)
        write("writes with a later epoch", 0, epoch=epoch + 1)
        add("adds others", (topic.name, (1, 2)))
        add("adds an unknown partition", (topic.name, (0, 9)))
        add("adds an unknown topic", (topic.name, (0,)), ("no-such-topic", (0,)))
        wrong: dict[str, dict[str, Any]] = {
            "an old epoch": {"epoch": epoch - 1},
            "a later epoch": {"epoch": epoch + 1},
            "another producer id": {"producer_id": producer_id + 5000},
            "an unknown id": {"name": "old-unknown"},
            "an empty id": {"name": ""},
        }
        for step, options in wrong.items():
            add(f"adds with {step}", **options)
        producer.describe("is described")
        partitions = [{"Name": topic.name, "PartitionIndexes": [0, 1, 2, 9]}]
        broker.ask(f"producers, {produce_version}", "DescribeProducers", Topics=partitions)
        producer.read("is read while it is open", topic)
        group = f"old-group-{produce_version}"
        producer.add_offsets("adds offsets", group, version=min(add_version, 3))
        for step, options in wrong.items():
            producer.add_offsets(f"adds offsets with {step}", group, version=min(add_version, 3), **options)
        producer.add_offsets("adds offsets of group ''", "", version=min(add_version, 3))
        for version in range(5):
            commits = (committed(40 + version, metadata="m"), committed(7, 1, metadata=None))
            producer.commit_offsets("commits offsets", group, offsets.name, *commits, version=version)
        for step, name, options in (
            ("of an unknown topic", "no-such-topic", {}),
            ("of a generation", offsets.name, {"generation": 1, "member": "x"}),
            ("of a member", offsets.name, {"member": "x"}),
            *((f"with {step}", offsets.name, options) for step, options in wrong.items()),
        ):
            producer.commit_offsets(f"commits offsets {step}", group, name, committed(1), version=3, **options)
        large = committed(0, metadata="x" * 5000)
        producer.commit_offsets("commits too much metadata", group, offsets.name, large, version=3)
        producer.commit_offsets("commits of an unknown partition", group, offsets.name, committed(1, 9), version=3)
        producer.commit_offsets("commits of group ''", "", offsets.name, committed(1), version=3)
        for stable in (False, True):
            asked = {"GroupId": group, "Topics": None, "RequireStable": stable}
            broker.ask(f"offsets while open, stable {stable}, {produce_version}", "OffsetFetch", 7, **asked)
        broker.ask(f"deletes the group, {produce_version}", "DeleteGroups", GroupsNames=[group])
        for step, options in wrong.items():
            end(f"ends with {step}", **options)
        end("commits")
        producer.wait_until_ended()
        end("commits again")
        end("aborts after that", committed=False)
        producer.describe("is described as committed")
        broker.ask(f"offsets then, {produce_version}", "OffsetFetch", 7, GroupId=group, Topics=None)
        producer.read("is read when it is committed", topic)
        add("adds for the next")
        write("writes the next", 2)
        end("aborts", committed=False)
        producer.wait_until_ended()
        end("aborts again", committed=False)
        producer.read("is read when it is aborted", topic)
        producer.begin_again("begins again", 4)
        add("adds with the epoch from before", epoch=epoch)
        producer.read("another partition is read", topic, 1)


@scenario
def transactions_of_new_clients(broker: AskedBroker) -> None:
    """The records themselves add their partition, and each end gives the next epoch (KIP-890)."""
    topic, offsets = broker.create_topic("new-transactions", 4), broker.create_topic("new-transactions-offsets", 4)
    producer = TransactionalProducer(broker, "new")
    producer.begin_again("begins")
    producer.end("commits nothing", committed=True)
    producer.wait_until_ended()
    producer.end("aborts nothing", committed=False)
    producer.wait_until_ended()
    producer.describe("after nothing")
    producer.begin_again("begins again")
    epoch, producer_id = producer.epoch, producer.producer_id
    producer.write("writes", topic, 0)
    producer.write("writes the same", topic, 0)
    producer.write("writes on", topic, 1)
    producer.write("writes to another partition", topic, 0, partition=1)
    producer.write("writes with an old epoch", topic, 0, epoch=epoch - 1)
    producer.write("writes with a later epoch", topic, 0, epoch=epoch + 1)
    producer.write("writes as an unknown id", topic, 0, partition=2, transactional_id="new-unknown")
    producer.write("writes without an id", topic, 0, partition=2, transactional_id=None)
    producer.write("writes with another producer id", topic, 0, partition=2, producer_id=producer_id + 7777)
    producer.write("writes by version 11", topic, 0, partition=2, version=11)
    producer.write("writes by version 12", topic, 0, partition=2, version=12)
    producer.describe("is described")
    producer.write("begins out of order", topic, 1, partition=3)
    producer.describe("is described with it")
    group = "new-group"
    producer.commit_offsets("commits offsets", group, offsets.name, committed(44, metadata="m"))
    producer.commit_offsets("commits offsets with an old epoch", group, offsets.name, committed(44), epoch=epoch - 1)
    producer.commit_offsets("commits offsets as an unknown id", group, offsets.name, committed(44), name="new-unknown")
    producer.add_offsets("adds offsets besides", group)
    producer.describe("is described with offsets")
    producer.end("commits", committed=True)
    broker.keep("its epoch grows by", producer.epoch - epoch)
    producer.wait_until_ended()
    producer.end("commits again with the old epoch", committed=True, epoch=epoch)
    producer.end("aborts with the old epoch", committed=False, epoch=epoch)
    producer.describe("is described when it is committed")
    producer.write("writes with the old epoch", topic, 2, epoch=epoch)
    producer.write("writes the next", topic, 0)
    producer.read("one committed, one open", topic)
    producer.end("aborts", committed=False)
    producer.wait_until_ended()
    producer.read("one committed, one aborted", topic)
    broker.ask("offsets", "OffsetFetch", 7, GroupId=group, Topics=None)
    producer.add("adds as old clients do", (topic.name, (2,)))
    producer.write("writes what it added", topic, 0, partition=2)
    producer.end("commits as old clients do", committed=True, version=4)
    producer.wait_until_ended()
    producer.write("writes with the same epoch", topic, 1, partition=2)
    for version in (4, 5):
        for verify in (False, True):
            producer.add(f"adds, verify {verify}", (topic.name, (0,)), version=version, verify=verify)


@scenario
def fenced_producers(broker: AskedBroker) -> None:
    topic, offsets = broker.create_topic("fenced"), broker.create_topic("fenced-offsets")
    producer = TransactionalProducer(broker, "fenced")
    producer.begin_again("begins")
    epoch = producer.epoch
    producer.write("writes", topic, 0)
    producer.begin_again("another begins")
    broker.keep("another's epoch is larger by", producer.epoch - epoch)
    producer.write("writes with the old epoch", topic, 1, epoch=epoch)
    producer.end("ends with the old epoch", committed=True, epoch=epoch)
    producer.add("adds with the old epoch", (topic.name, (0,)), epoch=epoch)
    producer.commit_offsets("commits offsets with it", "fenced-group", offsets.name, committed(4), epoch=epoch)
    producer.read("is read", topic)
    partitions = [{"Name": topic.name, "PartitionIndexes": [0]}]
    broker.ask("producers", "DescribeProducers", Topics=partitions)


@scenario
def transactions_listed(broker: AskedBroker) -> None:
    topic = broker.create_topic("listed-transactions")
    producers = [TransactionalProducer(broker, f"listed-{index}", str(index)) for index in range(3)]
    _, open_, complete = producers
    for producer in producers:
        producer.begin_again("begins")
    open_.write("writes", topic, 0)
    complete.write("writes", topic, 0)
    complete.end("commits", committed=True)
    complete.wait_until_ended()
    names = {producer.name for producer in producers}

    def listed(answer: Fields) -> Fields:
        states = [state for state in answer["TransactionStates"] if state["TransactionalId"] in names]
        return {**answer, "TransactionStates": states}

    for step, fields in {
        "all": {},
        **{
            f"states {states}": {"StateFilters": states}
            for states in (
                ["Ongoing"], ["Empty"], ["CompleteCommit"], ["CompleteAbort"], ["PrepareCommit"], ["nope"],
                ["Ongoing", "nope"], [""], ["ongoing"], ["Dead"], ["PrepareEpochFence"],
            )
        },
        "a producer id": {"ProducerIdFilters": [open_.producer_id]},
        "producer id -1": {"ProducerIdFilters": [-1]},
        "unknown producer id": {"ProducerIdFilters": [1 << 50]},
        "a state and a producer id": {"StateFilters": ["Empty"], "ProducerIdFilters": [open_.producer_id]},
    }.items():  # fmt: skip
        broker.ask_each(step, "ListTransactions", pick=listed, **fields)
    for duration in (-2, 0, 100_000):
        broker.ask_each(f"open for {duration}", "ListTransactions", (1, 2), DurationFilter=duration, pick=listed)
    for pattern in ("", "listed-0.*", "listed-0", "(", "[", ".*ted.*", "listed-\\d+", "(?=listed)"):
        broker.ask(f"pattern {pattern!r}", "ListTransactions", TransactionalIdPattern=pattern, pick=listed)


@scenario
def contradicting_produce_requests(broker: AskedBroker) -> None:
    """The records of one partition would be in order if they were alone."""
    topic = broker.create_topic("contradicting", 2)
    for version in (3, 11, 13):
        one, other = (TransactionalProducer(broker, f"contradicting-{each}-{version}") for each in "ab")
        for each in (one, other):
            each.begin_again(f"{each.name} begins")

        def ask(step: str, transactional_id: str | None, *records: bytes, version: int = version) -> None:
            data = [{"Index": index, "Records": each} for index, each in enumerate(records)]
            data.append({"Index": 9, "Records": batch(_ONE)})
            asked = [{"Name": topic.name, "TopicId": topic.id, "PartitionData": data}]
            fields = {"TransactionalId": transactional_id, "Acks": -1, "TimeoutMs": 5000, "TopicData": asked}
            broker.ask(step, "Produce", version, pick=_errors, **fields)

        first, second = (
            batch(_ONE, attributes=TRANSACTIONAL, producer=(each.producer_id, each.epoch), sequence=0)
            for each in (one, other)
        )
        ask("two producers in one transaction", one.name, first, second)
        ask("a transaction without an id", None, first, batch(_ONE))
        ask("a transaction without a producer", one.name, batch(_ONE, attributes=TRANSACTIONAL), batch(_ONE))


def _errors(answer: Fields) -> dict[int, int]:
    """Of each partition."""
    (topic,) = answer["Responses"]
    return {partition["Index"]: partition["ErrorCode"] for partition in topic["PartitionResponses"]}


@scenario
def transaction_markers(broker: AskedBroker) -> None:
    topic = broker.create_topic("markers")
    for version in (1, 2):

        def ask(step: str, producer: tuple[int, int], version: int = version, **options: Any) -> None:
            asked = {"Name": options.get("name", topic.name), "PartitionIndexes": options.get("partitions", [0])}
            marker = {
                "ProducerId": producer[0],
                "ProducerEpoch": producer[1],
                "TransactionResult": options.get("committed", True),
                "CoordinatorEpoch": options.get("coordinator_epoch", 0),
                "Topics": [asked],
            }
            broker.ask(step, "WriteTxnMarkers", version, Markers=[marker])

        unknown, other = (1 << 41) + version, 1 << 42
        ask("an unknown producer commits", (unknown, 0))
        ask("it aborts", (unknown, 0), committed=False)
        ask("an unknown topic", (other, 0), name="no-such-topic")
        ask("an unknown partition", (other, 0), partitions=[0, 9])
        ask("epoch -1", (unknown, -1))
        ask("a later epoch", (unknown, 5), committed=False)
        ask("an old epoch", (unknown, 1))
        ask("no partitions", (other, 0), partitions=[])
        ask("an old epoch of the coordinator", (unknown, 5), coordinator_epoch=-1)
    for transaction_version in (-1, 1):
        marker = {"ProducerId": 1 << 43, "ProducerEpoch": 0, "TransactionResult": True, "CoordinatorEpoch": 0}
        asked = [{"Name": topic.name, "PartitionIndexes": [0, 9]}]
        one = {**marker, "Topics": asked, "TransactionVersion": transaction_version}
        broker.ask(f"transaction version {transaction_version}", "WriteTxnMarkers", 2, Markers=[one])
    again = broker.create_topic("markers-again")
    for step, epoch in (("epoch 3", 3), ("epoch 3 again", 3), ("epoch 2", 2), ("epoch -1 first", -1)):
        marker = {"ProducerId": (1 << 44) + (epoch < 0), "ProducerEpoch": epoch, "TransactionResult": True}
        asked = [{"Name": again.name, "PartitionIndexes": [0]}]
        one = {**marker, "CoordinatorEpoch": 0, "Topics": asked, "TransactionVersion": 2}
        broker.ask(f"transaction version 2, {step}", "WriteTxnMarkers", 2, Markers=[one])
    broker.ask("the log", "Fetch", **fetch_fields(topic))
    partitions = [{"Name": topic.name, "PartitionIndexes": [0]}]
    broker.ask("producers", "DescribeProducers", Topics=partitions)
