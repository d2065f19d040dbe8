"""The options of a dump of `.log` files: which records, how much of them, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.inspector.check.file_kind import FileKind, kind_of
from core.inspector.dump.value_format import ValueAccount, ValueFormat, as_utf8

if TYPE_CHECKING:
    from core.inspector.dump.internal_records import Decoder


NO_START = -(1 << 63)
"""Below any offset, also those that only damage makes."""


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """`with_records`: records and not only batches; `with_data`: their keys and values too.

    `start_offset` leaves out the batches before it, `start_timestamp` those before the first that is as new;
    `max_records` counts records, or batches if no records are asked for; `max_bytes` is how much of the file is read,
    in whole batches. `key`: only records that have it. `decoded_as`: the internal topic of the records, if the folder's
    name does not say so. `skips_metadata`: of records only keys and values, in Kafka's text. `shows_secrets`: those of
    metadata records, too; `is_secret_config` says which settings' values may be some.
    """

    with_records: bool = False
    with_data: bool = False
    start_offset: int = NO_START
    start_timestamp: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    decoded_as: str | None = None
    skips_metadata: bool = False
    key: bytes | None = None
    key_format: ValueFormat = as_utf8
    value_format: ValueFormat = as_utf8
    account: ValueAccount | None = None
    """Counts for the formats the values that do not fit them, if it is asked to."""
    shows_secrets: bool = False
    is_secret_config: Callable[[int, str], bool] = lambda _resource_type, _name: True

    def hides_secrets_of(self, path: Path) -> bool:
        """Whether it is a file of metadata whose secrets must be hidden."""
        is_metadata = self.is_of_metadata(path) or kind_of(path) is FileKind.METADATA_SNAPSHOT
        return is_metadata and not self.shows_secrets

    def find_secrets(self, path: Path) -> Callable[[bytes | None], bool] | None:
        """Returns a function that says whether to hide the value of a record of the file; None if all are shown."""
        if not self.hides_secrets_of(path):
            return None
        from core.inspector.dump.internal_records import has_secrets

        return lambda value: has_secrets(value, self.is_secret_config)

    def is_of_metadata(self, path: Path) -> bool:
        """Whether it is a file of the metadata log, by its folder or by `decoded_as`."""
        return self._topic_of(path) == CLUSTER_METADATA_TOPIC

    def _topic_of(self, path: Path) -> str:
        return self.decoded_as or path.resolve().parent.name.rpartition("-")[0]

    def find_decoder(self, path: Path) -> Decoder | None:
        """Returns the decoder of the internal topic that the file belongs to, or None."""
        topic = self._topic_of(path)
        if not topic.startswith("__"):
            return None
        from core.inspector.dump.internal_records import find_decoder

        return find_decoder(topic, None if self.shows_secrets else self.is_secret_config)
