"""A snapshot loses nothing: image -> records -> image, over random records of every kind that states something; and
one delta makes of an image what its changes make one by one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage
from core.cluster.image.metadata_record import MetadataRecord, decode_metadata_record, encode_metadata_record
from core.protocol.message import Field, schema_of
from core.protocol.schema.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

STATING = (
    RegisterBrokerRecord,
    RegisterControllerRecord,
    ConfigRecord,
    FeatureLevelRecord,
    ClientQuotaRecord,
    AccessControlEntryRecord,
    UserScramCredentialRecord,
    DelegationTokenRecord,
    ProducerIdsRecord,
    ZkMigrationStateRecord,
)
CHANGING = (BrokerRegistrationChangeRecord, FenceBrokerRecord, UnfenceBrokerRecord, UnregisterBrokerRecord)

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(0, 3),
    "int16": st.integers(1, 9),
    "uint16": st.integers(0, 65535),
    "int32": st.integers(0, 3),
    "int64": st.integers(0, 1 << 62),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=3),
    "uuid": st.binary(min_size=16, max_size=16),
    "bytes": st.binary(max_size=4),
}


def any_of(cls: type, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Messages with every field of the schema at random, but for those that are given."""
    return st.builds(cls, **{field.name: any_value(field) for field in schema_of(cls).fields} | fixed)


def any_value(field: Field) -> st.SearchStrategy[Any]:
    if field.kind in ("array", "struct"):
        assert field.element is not None
        one = any_of(field.element) if isinstance(field.element, type) else SCALARS[field.element]
        value = st.lists(one, max_size=2) if field.kind == "array" else one
    else:
        value = SCALARS[field.kind]
    return value | st.none() if field.nullable.last >= 0 else value


def identity(record: Any) -> Any:
    """What a later record of the same kind takes the place of."""
    match record:
        case RegisterBrokerRecord():
            return record.broker_id
        case RegisterControllerRecord():
            return record.controller_id
        case ConfigRecord():
            return record.resource_type, record.resource_name, record.name
        case FeatureLevelRecord():
            return record.name
        case ClientQuotaRecord():
            return frozenset((part.entity_type, part.entity_name) for part in record.entity), record.key
        case AccessControlEntryRecord():
            return record.id
        case UserScramCredentialRecord():
            return record.name, record.mechanism
        case ProducerIdsRecord() | ZkMigrationStateRecord():
            return None  # there is one
    return record.token_id


def stated(cls: type) -> st.SearchStrategy[Any]:
    match cls.__name__:
        case "ConfigRecord":
            return any_of(cls, value=SCALARS["string"])
        case "ClientQuotaRecord":
            return any_of(cls, remove=st.just(value=False))
    return any_of(cls)


ANY_PARTITION, ANY_CHANGE = any_of(PartitionRecord), any_of(PartitionChangeRecord)
"""Of any topic and any number; `placed` gives them others."""
ANY_OTHER_CHANGE = st.one_of(
    [any_of(cls) for cls in CHANGING] + [any_of(ClearElrRecord, topic_name=st.sampled_from(["", "t0", "t1"]))]
)


def placed(record: Any, topic_id: bytes, number: int) -> Any:
    record.topic_id, record.partition_id = topic_id, number
    return record


@st.composite
def topics(draw: st.DrawFn) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for number in range(draw(st.integers(0, 3))):
        topic_id = bytes([number]) * 16
        records.append(TopicRecord(f"t{number}", topic_id))
        records += [placed(draw(ANY_PARTITION), topic_id, partition) for partition in range(draw(st.integers(0, 2)))]
    return records


@st.composite
def changes_of(draw: st.DrawFn, of_topics: list[MetadataRecord]) -> list[Any]:
    """Records that change something of what there is, if anything."""
    changes: list[Any] = draw(st.lists(ANY_OTHER_CHANGE, max_size=3))
    for one in of_topics:
        if isinstance(one, PartitionRecord) and draw(st.booleans()):
            change = draw(ANY_CHANGE if draw(st.booleans()) else ANY_PARTITION)
            changes.append(placed(change, one.topic_id, one.partition_id))
    return changes


ANY_STATED = st.lists(st.one_of([stated(cls) for cls in STATING]), max_size=8)


def image_of(records: list[MetadataRecord]) -> MetadataImage:
    image = MetadataDelta(MetadataImage()).replay(records).apply()
    image._check_invariants()
    return image


def again(image: MetadataImage) -> MetadataImage:
    """As a start makes it from the snapshot, whose being there says that there was a topic once."""
    made = image_of([decode_metadata_record(encode_metadata_record(record)) for record in image.to_records()])
    return replace(made, has_known_topics=image.has_known_topics)


def counted(records: Any) -> Counter[bytes]:
    return Counter(encode_metadata_record(record) for record in records)


@settings(max_examples=settings().max_examples * 2)
@given(st.data(), topics(), ANY_STATED)
def test_a_snapshot_holds_what_was_stated_and_changed(
    data: st.DataObject, of_topics: list[MetadataRecord], others: list[Any]
) -> None:
    last = {(type(record), identity(record)): record for record in others}
    image = image_of([*of_topics, *others])
    stated_records = counted(image.to_records())
    assert stated_records == counted([*of_topics, *last.values()]), "to the byte"

    changes = data.draw(changes_of(of_topics))
    removed = {record.topic_id for record in of_topics if isinstance(record, TopicRecord) and data.draw(st.booleans())}
    changes += [RemoveTopicRecord(topic_id) for topic_id in removed]
    changes += data.draw(ANY_STATED)
    one_by_one = image
    for change in changes:
        one_by_one = MetadataDelta(one_by_one).replay([change]).apply()
        one_by_one._check_invariants()
    assert again(one_by_one) == one_by_one
    delta = MetadataDelta(image).replay(changes)
    assert delta.apply() == one_by_one
    assert {topic.topic_id for topic in delta.deleted_topics()} == removed
    assert counted(image.to_records()) == stated_records, "the image before stays as it was"


def test_a_broker_is_fenced_and_comes_back() -> None:
    image = image_of([RegisterBrokerRecord(broker_id=1, fenced=True)])
    unfenced = MetadataDelta(image).replay([UnfenceBrokerRecord(1, 5), UnfenceBrokerRecord(2, 5)]).apply()
    fenced = MetadataDelta(unfenced).replay([FenceBrokerRecord(1, 5)]).apply()
    assert [one.brokers[1].fenced for one in (image, unfenced, fenced)] == [True, False, True]
    assert set(unfenced.brokers) == {1}
