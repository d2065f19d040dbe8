"""What records of Kafka's own topics say, as JSON; and what of them is not to be shown."""

from __future__ import annotations

import json

from core.common.config_def import HIDDEN
from core.common.errors import CorruptRecordError
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.inspector.dump.internal_records import DELETED, Decoder, find_decoder, has_secrets, hidden_metadata
from core.records.record import Record
from core.view.records.log_rows import LogRow


class InternalValues:
    """Reads the records of one topic as `plog dump-segment` decodes them; immutable."""

    def __init__(self, topic: str) -> None:
        self._is_metadata = topic == CLUSTER_METADATA_TOPIC
        self._decoder: Decoder | None = hidden_metadata(_is_secret) if self._is_metadata else find_decoder(topic)

    @property
    def is_internal(self) -> bool:
        """Whether the topic is one of those that are known."""
        return self._decoder is not None

    def decoded(self, row: LogRow) -> tuple[bytes | None, bytes | None]:
        """Gives the key and the value as JSON; as they are, if they say nothing that is known."""
        if self._decoder is None:
            return row.key, row.value
        record = Record(row.offset, row.timestamp or 0, row.key, row.value, row.headers)
        try:
            key, value = self._decoder(record)
        except CorruptRecordError:
            return self.plain(row)
        return (row.key if key is None else _json(key)), None if value is DELETED else _json(value)

    def key_words(self, row: LogRow) -> bytes | None:
        """Gives what the key names, in a few words, such as the group, the topic and the partition."""
        key, _ = self.decoded(row)
        try:
            named = json.loads(key or b"")["data"].values()
        except (ValueError, KeyError, TypeError, AttributeError):
            return key
        return " ".join(map(str, named)).encode()

    def plain(self, row: LogRow) -> tuple[bytes | None, bytes | None]:
        """Gives the key and the value as they are; not a value that may hold a secret."""
        if self._is_metadata and has_secrets(row.value, _is_secret):
            return row.key, HIDDEN.encode()
        return row.key, row.value


def _is_secret(_resource_type: int, _name: str) -> bool:
    """Which settings are secrets is for a broker to say, so all may be."""
    return True


def _json(fields: object) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()
