"""Shows the records of Kafka's own topics as JSON, as `plog dump-segment` does from their files."""

from __future__ import annotations

import json
from collections.abc import Callable

from core.common.config_def import HIDDEN
from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.inspector.dump.internal_records import DELETED, Decoder, find_decoder, has_secrets
from core.pipeline.record_stream import Chunk, Step
from core.records.byte_strings import ByteStrings
from core.records.record import Record


def decoding_internal(otherwise: Step | None, say: Callable[[str], None]) -> Step:
    """Returns a step that decodes records of Kafka's own topics, and leaves those of others to `otherwise`. Records of
    an unknown form stay as they are; the first is reported. Owned by one task.
    """
    has_noted = False

    def texts(record: Record, decoder: Decoder, partition: TopicPartition) -> tuple[bytes | None, bytes | None]:
        nonlocal has_noted
        try:
            key, value = decoder(record)
        except CorruptRecordError as error:
            if not has_noted:
                has_noted = True
                where = f"{partition} offset {record.offset}"
                say(f"note: {where} is shown as it is, as are others that plog does not know: {error.cause}")
            is_hidden = partition.topic == CLUSTER_METADATA_TOPIC and has_secrets(record.value)
            return record.key, HIDDEN.encode() if is_hidden else record.value
        return record.key if key is None else _json(key), None if value is DELETED else _json(value)

    def step(chunk: Chunk) -> Chunk:
        columns, decoder = chunk.columns, find_decoder(chunk.partition.topic)
        if decoder is None:
            return chunk if otherwise is None else otherwise(chunk)
        is_control = columns.is_control.tolist()
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for row, offset in enumerate(columns.offsets.tolist()):
            record = Record(offset, int(columns.timestamps[row]), columns.key(row), columns.value(row))
            key, value = record.key, record.value
            if not is_control[row]:
                key, value = texts(record, decoder, chunk.partition)
            keys.append(key)
            values.append(value)
        columns = columns.with_keys(ByteStrings.of_list(keys))
        return chunk._replace(columns=columns.with_values(ByteStrings.of_list(values)), typed=None)

    return step


def _json(fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
