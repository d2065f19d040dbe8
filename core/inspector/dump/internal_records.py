"""Shows the records of Kafka's internal topics as Kafka's own dump tool does when it decodes them.

Source: org.apache.kafka.tools.DumpLogSegments and the record serdes of its coordinators.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from core.cluster.image.metadata_record import MetadataRecord, decode_versioned_metadata_record
from core.common.config_def import HIDDEN
from core.common.errors import CorruptRecordError, MalformedMessageError
from core.coordinator.group_record_values import RecordTypes, read_record, record_types
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.inspector.dump.kafka_text import KEY_LABEL, VALUE_LABEL, plain_text
from core.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, read_consumer_protocol
from core.protocol.message import schema_of
from core.protocol.message_json import message_to_json
from core.protocol.schema import (
    group_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    transaction_records,
)
from core.protocol.schema.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from core.records.record import Record

Decoder = Callable[[Record], tuple[Any, Any]]
"""Returns a record's key and value for JSON; (None, value) for a topic without keys. `DELETED` for a deletion.

Raises CorruptRecordError for a key or value of an unknown form.
"""

DELETED = "<DELETE>"

IsSecretConfig = Callable[[int, str], bool]
"""Says whether the value of a setting may be a secret, by the resource's type (`ConfigResourceType`) and its name."""

_SCRAM_SECRETS = ("salt", "storedKey", "serverKey")

_TYPES: Mapping[str, RecordTypes] = {
    "__consumer_offsets": record_types(group_records, share_group_records, streams_group_records),
    "__transaction_state": record_types(transaction_records),
    "__share_group_state": record_types(share_state_records),
}


def _any_config(_resource_type: int, _name: str) -> bool:
    """Only a broker knows which settings are secrets: without one, all count as secrets."""
    return True


def find_decoder(topic: str, is_secret_config: IsSecretConfig | None = _any_config) -> Decoder | None:
    """Returns the decoder of one of Kafka's own topics, or None for another topic. That of metadata shows no secrets:
    `[hidden]` stands for the keys of SCRAM users, and for the values of settings that may be secrets; with None for
    `is_secret_config` it shows them all.
    """
    if topic == CLUSTER_METADATA_TOPIC:
        return _decode_metadata if is_secret_config is None else _hiding_metadata(is_secret_config)
    if topic not in _TYPES:
        return None
    return lambda record: _decode_coordinator(record, topic)


def _hiding_metadata(is_secret_config: IsSecretConfig) -> Decoder:
    def decode(record: Record) -> tuple[None, Any]:
        _, fields = _decode_metadata(record)
        data = fields["data"]
        for name in _secret_fields(fields["type"], data, is_secret_config):
            data[name] = HIDDEN
        return None, fields

    return decode


def has_secrets(value: bytes | None, is_secret_config: IsSecretConfig = _any_config) -> bool:
    """Says whether the value of a metadata record holds a secret; one that does not decode may hold some."""
    if value is None:
        return False
    try:
        message, version = decode_versioned_metadata_record(value)
    except MalformedMessageError:
        return True
    return bool(_secret_fields(_type_name(message), message_to_json(message, version), is_secret_config))


def _secret_fields(type_: str, data: Mapping[str, Any], is_secret_config: IsSecretConfig) -> tuple[str, ...]:
    if type_ == "USER_SCRAM_CREDENTIAL_RECORD":
        return _SCRAM_SECRETS
    is_config = type_ == "CONFIG_RECORD" and data["value"] is not None
    return ("value",) if is_config and is_secret_config(data["resourceType"], data["name"]) else ()


def decoded_text(record: Record, decoder: Decoder, *, is_metadata: bool) -> str:
    """Writes key and payload as JSON, after a space; as they are if they can't be decoded."""
    try:
        key, value = decoder(record)
    except CorruptRecordError as error:
        if is_metadata:
            return f"{VALUE_LABEL}Error at {record.offset}, skipping. {error.cause}"
        return plain_text(record._replace(key=record.key or b"", value=record.value or b""))
    payload = VALUE_LABEL + (value if value is DELETED else _json(value))
    return payload if key is None else KEY_LABEL + _json(key) + payload


def _decode_metadata(record: Record) -> tuple[None, Any]:
    try:
        message, version = decode_versioned_metadata_record(record.value)
    except MalformedMessageError as error:
        raise CorruptRecordError(error.message) from error
    return None, {"type": _type_name(message), "version": version, "data": message_to_json(message, version)}


def _type_name(message: MetadataRecord) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(message).__name__).upper()


def _decode_coordinator(record: Record, topic: str) -> tuple[Any, Any]:
    read = read_record(record.key or b"", record.value, _TYPES[topic])
    if read is None:
        raise CorruptRecordError("record of a type that is not known", offset=record.offset)
    key, value, _ = read
    type_ = int.from_bytes((record.key or b"")[:2])
    shown = {"type": str(type_), "data": message_to_json(key, 0)}
    if value is None or record.value is None:
        return shown, DELETED
    version = int.from_bytes(record.value[:2])
    data = message_to_json(value, version)
    if isinstance(value, group_records.GroupMetadataValue) and value.protocol_type == CONSUMER_PROTOCOL_TYPE:
        for member, row in zip(value.members, data["members"], strict=True):
            row["subscription"] = _opened(ConsumerProtocolSubscription, member.subscription, row["subscription"])
            row["assignment"] = _opened(ConsumerProtocolAssignment, member.assignment, row["assignment"])
    return shown, {"version": str(version), "data": data}


def _opened(class_: type, data: bytes, shown: object) -> object:
    """Decodes a consumer's message to the group, with all fields of the newest version; `shown` if that fails."""
    try:
        message: object = read_consumer_protocol(class_, data)
    except MalformedMessageError:
        return shown
    return message_to_json(message, schema_of(class_).valid.last)


def _json(fields: object) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
