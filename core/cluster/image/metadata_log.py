"""`__cluster_metadata-0`: the log of metadata records, as a KRaft quorum of one voter keeps it.

Besides batches of metadata records it holds control batches: a LeaderChange where an epoch begins. A snapshot
`<end offset>-<epoch>.checkpoint` holds, between a SnapshotHeader and a SnapshotFooter, records that add up to all
before its end offset. `quorum-state` is the voter's memory of epochs. Kafka's `kraft` formats throughout
(org.apache.kafka.raft, KIP-595, KIP-630).

Every batch is on the disk before the next one is written. So damage with sound records after it is no crash's: the log
is not opened then, since without those records nobody would know whose the topics' folders are.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage
from core.cluster.image.metadata_record import MetadataRecord, decode_metadata_record, encode_metadata_record
from core.common.clock import Clock
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, MalformedMessageError
from core.common.filesystem import FileSystem, access_error, accessing
from core.common.java_limits import LONG_MAX
from core.common.salvaging_file import open_salvaging, read_small_file
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import find_topic_id, write_partition_metadata
from core.files.file_names import CHECKPOINT_SUFFIX, CLUSTER_METADATA_TOPIC, LOG_SUFFIX, find_offset_files
from core.files.file_records import FileRecords
from core.files.log_config import LogConfig
from core.forensics.partition_reader import PartitionReader
from core.forensics.recovery_journal import gave_up_end
from core.log.log_loader import LogSettings, load_log
from core.log.partition_log import PartitionLog
from core.protocol.message_codec import codec
from core.protocol.schema.control_records import LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord, Voter
from core.protocol.schema.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from core.records.control_record import ControlRecordType, control_key
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of

_log = logging.getLogger("plog.metadata")

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
_METADATA_TOPIC_ID = bytes(15) + b"\x01"
_CONFIG = LogConfig(segment_bytes=1 << 30, retention_ms=-1, max_message_bytes=8 * 1024 * 1024, segment_ms=LONG_MAX)
_MAX_BATCH_BYTES = 4 * 1024 * 1024
_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
PERHAPS_KEPT = ErrorCode.REQUEST_TIMED_OUT
"""The answer to a change that could be neither synced nor cut off again: clients learn that it may have been made, or
may be yet."""

_SNAPSHOT_AFTER_BYTES = 20 * 1024 * 1024  # metadata.log.max.record.bytes.between.snapshots


class MetadataLog:
    """Owned by one task. Opening it replays everything into `image` and begins a new epoch at the first append."""

    def __init__(
        self, directory: Path, node_id: int, clock: Clock, filesystem: FileSystem, *, is_read_only: bool = False
    ) -> None:
        self.directory = directory / f"{CLUSTER_METADATA_TOPIC}-0"
        self._node_id = node_id
        self._clock = clock
        self._filesystem = filesystem
        self.lacks_records = False
        """Whether records were lost: there may be topics that `image` does not know."""
        self._log = self._open(is_read_only=is_read_only)
        self.epoch = max(self._log.leader_epochs.latest_epoch, self._epoch_of_quorum_state()) + 1
        self._is_leading = False
        self._failure: KafkaError | None = None

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    # --- opening

    def _open(self, *, is_read_only: bool) -> PartitionLog:
        self._filesystem.make_directory(self.directory)
        if find_topic_id(self.directory) is None:  # it is written unsynced, and always the same
            write_partition_metadata(self.directory, _METADATA_TOPIC_ID, self._filesystem)
        snapshot, self._snapshot_end = _read_newest_snapshot(self.directory)
        settings = LogSettings(
            self._clock, self._filesystem, keeps_cut_bytes=not is_read_only, cuts_sound_records=is_read_only
        )
        offsets = (offset for offset, _ in find_offset_files(self.directory, LOG_SUFFIX))
        loaded = load_log(
            self.directory,
            METADATA_PARTITION,
            _CONFIG,
            settings,
            log_start_offset=min(offsets, default=self._snapshot_end),
            had_clean_shutdown=False,
        )
        log = loaded.log
        self.lacks_records = loaded.was_cut or gave_up_end(self.directory, 0)
        if log.log_end_offset < self._snapshot_end:
            log.truncate_fully_and_start_at(self._snapshot_end)
        log.update_high_watermark(log.log_end_offset)
        self.image, self._has_open_transaction = _replay(_records_of(log, self._snapshot_end), snapshot)
        return log

    def _epoch_of_quorum_state(self) -> int:
        try:
            state = json.loads(read_small_file(self.directory / "quorum-state"))
            return int(state["leaderEpoch"])
        except (FileNotFoundError, CorruptRecordError, ValueError, KeyError, TypeError):
            return 0

    # --- appending

    def append(self, records: Sequence[MetadataRecord], *, is_one_batch: bool = False) -> MetadataDelta:
        """Appends the records as one batch (more if it would be too large), syncs them, applies them to the image, and
        returns the change. With `is_one_batch` a crash keeps all of them or none; raises KafkaError(
        RECORD_LIST_TOO_LARGE) for too many, as Kafka's raft client does.

        Raises KafkaError if the disk refuses; nothing is applied then. If it refused in the middle, the contents of the
        file are unknown: the written part is cut off again, as the next start must not find records that the image
        lacks, and appends fail until then. KAFKA_STORAGE_ERROR means that the next start does not find the records,
        PERHAPS_KEPT that it may, because the disk refused the cut too.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)  # a traceback would grow, and keep each refused request
        end_offset = self._log.log_end_offset
        values = [encode_metadata_record(record) for record in records]
        if is_one_batch and (size := sum(map(len, values))) > _MAX_BATCH_BYTES:
            limit = f"expected at most {_MAX_BATCH_BYTES} in one change"
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"metadata records of {size} bytes, {limit}")
        try:
            if not self._is_leading:
                self._begin_epoch()
            now_ms = self._clock.now_ms()
            for batch in [values] if is_one_batch else _in_batches(values):
                self._append_batch([Record(n, now_ms, None, value) for n, value in enumerate(batch)])
        except OSError as error:
            has_begun = self._log.log_end_offset > end_offset
            is_cut = not has_begun or self._cut_back(end_offset)
            raise self._failed(error, has_begun=has_begun, is_cut=is_cut) from error
        self._log.update_high_watermark(self._log.log_end_offset)
        delta = MetadataDelta(self.image).replay(records)
        self.image = delta.apply()
        return delta

    def _cut_back(self, end_offset: int) -> bool:
        """Cuts off what was written from that offset on; returns whether the cut survives a power cut."""
        try:
            self._log.truncate_to(end_offset)
            self._filesystem.sync_file(self._log.segments.active.records.path)
            self._filesystem.sync_directory(self.directory)
        except OSError as error:
            _log.error("%s", access_error(error, error.filename or self.directory, "cut back"))
            return False
        return True

    def _failed(self, error: OSError, *, has_begun: bool, is_cut: bool) -> KafkaError:
        reason = str(access_error(error, error.filename or self.directory, "write to"))
        if has_begun:
            what = "the metadata can't change until a restart"
            self._failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{reason}; {what}")
            reason += f"; {what}" if is_cut else f"; {what}, which may find this change made"
        failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR if is_cut else PERHAPS_KEPT, reason)
        _log.error("%s", failure)
        return failure

    def _begin_epoch(self) -> None:
        voters = [Voter(self._node_id)]
        state = {
            "clusterId": "",
            "leaderId": self._node_id,
            "leaderEpoch": self.epoch,
            "votedId": -1,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": self._node_id}],
            "data_version": 0,
        }
        content = json.dumps(state, separators=(",", ":")).encode()
        self._filesystem.write_atomic(self.directory / "quorum-state", content)
        message = LeaderChangeMessage(leader_id=self._node_id, voters=voters, granting_voters=voters)
        value = codec(LeaderChangeMessage, 0).encode(message)
        key = control_key(ControlRecordType.LEADER_CHANGE)
        now_ms = self._clock.now_ms()
        self._append_batch([Record(0, now_ms, key, value)], is_control=True)
        if self._has_open_transaction:
            abort = encode_metadata_record(AbortTransactionRecord(reason="the controller stopped in the middle"))
            self._append_batch([Record(0, now_ms, None, abort)])
        self._is_leading = True

    def _append_batch(self, records: list[Record], *, is_control: bool = False) -> None:
        """Appends a batch and syncs it: a power cut that loses a batch keeps none after it."""
        batch = bytearray(batch_of(records, is_control=is_control))
        self._log.append_as_leader(RecordBatch(memoryview(batch)), self.epoch, from_client=False)
        self._log.flush()

    def close(self) -> None:
        """Writes a snapshot if the log has grown long since the last one, and closes. If the disk refuses, only the
        next start is slower: every append is on the disk.
        """
        try:
            if self._log.size_bytes > _SNAPSHOT_AFTER_BYTES and self._log.log_end_offset > self._snapshot_end:
                self._write_snapshot()
            self._log.close()
        except OSError as error:
            _log.error("%s", access_error(error, error.filename or self.directory, "write to"))

    def _write_snapshot(self) -> None:
        """Writes the image as a checkpoint at the log's end, and deletes the part of the log that it covers."""
        end_offset = self._log.log_end_offset
        path = self.directory / f"{end_offset:020d}-{self._log.leader_epochs.latest_epoch:010d}{CHECKPOINT_SUFFIX}"
        now_ms = self._clock.now_ms()
        header = codec(SnapshotHeaderRecord, 0).encode(SnapshotHeaderRecord(last_contained_log_timestamp=now_ms))
        footer = codec(SnapshotFooterRecord, 0).encode(SnapshotFooterRecord())
        batches = [_control_batch(ControlRecordType.SNAPSHOT_HEADER, header, 0, now_ms)]
        offset = 1
        for values in _in_batches([encode_metadata_record(r) for r in self.image.to_records()]):
            records = [Record(n, now_ms, None, value) for n, value in enumerate(values)]
            batches.append(batch_of(records, base_offset=offset, partition_leader_epoch=self.epoch))
            offset += len(values)
        batches.append(_control_batch(ControlRecordType.SNAPSHOT_FOOTER, footer, offset, now_ms))
        self._filesystem.write_atomic(path, b"".join(batches))
        self._log.truncate_fully_and_start_at(end_offset)
        for match in map(_SNAPSHOT_NAME.fullmatch, (p.name for p in self.directory.glob(f"*{CHECKPOINT_SUFFIX}"))):
            if match and int(match[1]) < end_offset:
                self._filesystem.unlink(self.directory / match[0])
        self._snapshot_end = end_offset


def _control_batch(type_: ControlRecordType, value: bytes, base_offset: int, now_ms: int) -> bytes:
    records = [Record(0, now_ms, control_key(type_), value)]
    return batch_of(records, base_offset=base_offset, partition_leader_epoch=0, is_control=True)


def _in_batches(values: Sequence[bytes]) -> Iterable[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for value in values:
        if batch and size + len(value) > _MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(value)
        size += len(value) + 20
    if batch:
        yield batch


def _records_of(log: PartitionLog, start_offset: int) -> Iterable[MetadataRecord]:
    for segment in log.segments.from_offset(start_offset):
        for batch in segment.records.iter_batches():
            if batch.is_control or batch.last_offset < start_offset:
                continue
            for record in batch.records():
                if record.offset >= start_offset:
                    yield _decode(record, segment.records.path)


def read_snapshot(path: Path) -> Iterable[MetadataRecord]:
    """Reads the metadata records of a `.checkpoint`; raises CorruptRecordError if it is damaged, AccessError if it
    can't be opened.
    """
    with accessing(path):
        records = FileRecords(path, open_salvaging)
    try:
        for batch in records.iter_batches():
            batch.ensure_valid()
            if not batch.is_control:
                for record in batch.records():
                    yield _decode(record, path)
    except CorruptRecordError as error:
        raise error.in_file(path) from None
    finally:
        records.close()


def _decode(record: Record, path: Path) -> MetadataRecord:
    try:
        return decode_metadata_record(record.value)
    except MalformedMessageError as error:
        raise CorruptRecordError(f"{error}", offset=record.offset, path=str(path)) from error


def read_metadata_image(directory: Path, *, is_locked: bool = False) -> MetadataImage | None:
    """Returns the image of a data directory's metadata log, read from outside: no lock, no write; None if there is no
    such log. `is_locked`: the caller holds the directory's lock. Raises CorruptRecordError if the log is damaged,
    UnreadableFileError if the system can't read all of it.
    """
    folder = directory / f"{CLUSTER_METADATA_TOPIC}-0"
    if not folder.is_dir():
        return None
    snapshot, end_offset = _read_newest_snapshot(folder)
    reader = PartitionReader(folder, is_locked=is_locked)
    try:
        for error in reader.unreadable:
            raise error
        batches = reader.read(max(end_offset, reader.start_offset), reader.end_offset, read_committed=False)
        image, _ = _replay(
            (_decode(record, folder) for batch in batches for record in batch.records() if record.offset >= end_offset),
            snapshot,
        )
    finally:
        reader.close()
    return image


def _read_newest_snapshot(directory: Path) -> tuple[MetadataImage, int]:
    found = [
        (int(match[1]), path)
        for path in directory.glob(f"*{CHECKPOINT_SUFFIX}")
        if (match := _SNAPSHOT_NAME.fullmatch(path.name))
    ]
    if not found:
        return MetadataImage(), 0
    end_offset, path = max(found)
    image, _ = _replay(read_snapshot(path), MetadataImage())
    return replace(image, has_known_topics=True), end_offset  # there is one only after a long life


def _replay(records: Iterable[MetadataRecord], before: MetadataImage) -> tuple[MetadataImage, bool]:
    """Applies the records: those of a transaction (KIP-868) at its end, those of an aborted or unended one never. Also
    returns whether the last transaction is unended. Raises CorruptRecordError for a record about a topic that no record
    before it creates.
    """
    delta = MetadataDelta(before)
    transaction: list[MetadataRecord] | None = None
    try:
        for record in records:
            match record:
                case BeginTransactionRecord():
                    transaction = []
                case EndTransactionRecord():
                    delta.replay(transaction or ())
                    transaction = None
                case AbortTransactionRecord():
                    transaction = None
                case _ if transaction is not None:
                    transaction.append(record)
                case _:
                    delta.replay((record,))
    except KeyError:
        raise CorruptRecordError(f"a record of {METADATA_PARTITION} is about a topic that it does not have") from None
    return delta.apply(), transaction is not None
