"""Who has been the controller, as a metadata log has it: each leader of the quorum begins with a LeaderChange."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.forensics.partition_reader import PartitionReader
from core.protocol.message_codec import codec
from core.protocol.schema.control_records import LeaderChangeMessage
from core.records.control_record import ControlRecordType, control_type
from core.records.record_batch import RecordBatch


class ControllerTerm(NamedTuple):
    """A time of office: it began at that time, with the record at that offset."""

    epoch: int
    controller_id: int
    since_ms: int
    offset: int


def read_controller_history(directory: Path) -> list[ControllerTerm] | None:
    """Gives the times of office that the metadata log of a data directory still has, the first one first; None if there
    is no such log. What snapshots stand for is gone. Raises CorruptRecordError if the log is damaged,
    UnreadableFileError if the system does not give all of it.
    """
    folder = directory / f"{CLUSTER_METADATA_TOPIC}-0"
    if not folder.is_dir():
        return None
    reader = PartitionReader(folder)
    try:
        for error in reader.unreadable:
            raise error
        batches = reader.read(reader.start_offset, reader.end_offset, read_committed=False, with_control=True)
        return [
            ControllerTerm(batch.partition_leader_epoch, message.leader_id, record.timestamp, record.offset)
            for batch in batches
            if isinstance(batch, RecordBatch) and batch.is_control
            for record in batch.records()
            if control_type(record.key) is ControlRecordType.LEADER_CHANGE and record.value is not None
            for message, _ in [codec(LeaderChangeMessage, 0).decode(memoryview(record.value))]
        ]
    finally:
        reader.close()
