"""Says what a folder of Kafka's or plog's files is, how it is, and the three things that are most worth doing about it.

`verify`, `gaps` and `stats` each look at its logs, by the code of these commands, so that all of them say the same. A
folder with more than `MOST_BYTES` of logs is looked at in part, unless the user wants the whole: the small files beside
the partitions, and the newest segment of each partition, the one that was written last first.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from core.cluster.image.feature_levels import METADATA_VERSION_FEATURE, SUPPORTED_FEATURES, find_release
from core.common.clock import Clock, SystemClock
from core.common.endpoint import Endpoint
from core.common.errors import AccessError, PlogError
from core.common.topic_partition import TopicPartition
from core.files.directory_lock import find_lock_holder
from core.files.file_names import (
    CLEAN_SHUTDOWN,
    CLEANED_SUFFIX,
    CLUSTER_METADATA_TOPIC,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    META_PROPERTIES,
    SET_ASIDE,
    SWAP_SUFFIX,
    WAS_MEMBER,
    find_offset_files,
    find_partition_folders,
    is_folder,
    locate_partition,
    parse_offset_file_name,
)
from core.files.meta_properties import MetaProperties, read_meta_properties
from core.forensics.cut_off_tails import CUT_AT
from core.forensics.gap_ledger import LOSING_REASONS, Gap, GapReason
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.partition_reader import DirectoryReader
from core.inspector.check.file_kind import ensure_there, kind_of, skip_unreadable
from core.inspector.check.findings import Code, Finding
from core.inspector.check.verify import find_unchecked, size_to_check, verify
from core.inspector.stats.log_stats import read_stats
from core.pipeline.frontend import Progress
from core.pipeline.gap_account import accounts_of
from core.pipeline.log_places import LogPlace

if TYPE_CHECKING:
    from core.cluster.image.metadata_image import MetadataImage

MOST_BYTES = 10 * 1024**3
"""The most bytes of logs that are looked at without a word from the user; reading them takes about a minute."""

_MOST_ADVICE = 3
_USUAL_TRANSACTION_MS = 900_000
"""Kafka's transaction.max.timeout.ms: what is open for a shorter time on a running broker is nothing to see to."""
_LAST_RESERVED_ID = (99).to_bytes(16)
"""The last of the ids of directories that stand for none, as Kafka's DirectoryId has them."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_RENAMED = {
    "-stray": "a broker set it aside, as no topic has it; nobody deletes it",
    "-delete": "its topic was deleted; the next start of a broker deletes the folder",
    "-future": "a move to another of log.dirs was not finished",
}
"""How the names of folders end that are no partitions any more, and why."""
_LEFT_BEHIND = {
    DELETED_SUFFIX: "deleted within a minute of a broker's work",
    CLEANED_SUFFIX: "a cleaning was not finished",
    SWAP_SUFFIX: "a cleaning was not finished",
    CUT_AT: "a start cut them off",
    SET_ASIDE: "plog recover set them aside",
}
"""Parts of the names of files in a partition's folder that are no part of its log, and why they are there."""
_NOT_FOR_RECOVER = {Code.UNREADABLE, Code.FOLDER_MISNAMED, Code.TOPIC_ID_MISMATCH}


class Advice(NamedTuple):
    """Something worth doing: why, and the words of the command."""

    why: str
    command: list[str]


class OpenTransaction(NamedTuple):
    """The first transaction that holds readers of committed records: where, and the time of its first batch in ms."""

    partition: str
    offset: int
    since_ms: int


@dataclass(slots=True)
class Diagnosis:
    """What is known of a folder or a file; None for what nothing tells. Sizes are in bytes, times in ms."""

    path: str
    kind: str
    cluster_id: str | None = None
    node_id: int | None = None
    written_by: str | None = None
    metadata_version: int | None = None
    security: str | None = None
    """What the metadata have of it: protocols of listeners, counts of ACLs and users; "" for no security."""
    served_by: str | None = None
    server: str | None = None
    """The address of whoever serves it, if clients reach it there in plaintext."""
    was_stopped_cleanly: bool | None = None
    """None for a directory that is served now, or that was no broker's."""
    topics: int = 0
    partitions: int = 0
    size_bytes: int = 0
    segments: int = 0
    topic_bytes: dict[str, int] = field(default_factory=dict)
    """The sizes of the topics' logs, the largest first."""
    absent_partitions: list[str] = field(default_factory=list)
    """Partitions that the broker has by the metadata, and of which the directory has no folder."""
    partitions_elsewhere: list[str] = field(default_factory=list)
    """Partitions that the broker has in another of its log.dirs, by the metadata."""
    unknown_partitions: list[str] = field(default_factory=list)
    """Partitions with a folder here that no topic of the metadata has: a start of Kafka sets them aside."""
    elsewhere: list[str] = field(default_factory=list)
    """Other directories of the same broker: more of its log.dirs."""
    beside: dict[str, int] = field(default_factory=dict)
    """What is there besides logs -> how many of it."""
    unchecked: list[str] = field(default_factory=list)
    """The names of folders and files that `plog verify` passes over, and names in notes."""
    seen_bytes: int = 0
    """The bytes of logs that were looked at; fewer than `size_bytes` if it was a part."""
    seconds: float = 0.0
    findings: dict[str, int] = field(default_factory=dict)
    """Codes of `plog verify` -> how many."""
    records_at_stake: int = 0
    records: int | None = None
    """As `plog gaps` counts them, hidden ones too; None for a single file."""
    hidden_records: int = 0
    offsets_without_record: int = 0
    lost: int = 0
    gap_reasons: dict[str, int] = field(default_factory=dict)
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    batches: int = 0
    first_timestamp: int = -1
    last_timestamp: int = -1
    future_batches: int = 0
    advice: list[Advice] = field(default_factory=list)

    @property
    def is_partial(self) -> bool:
        return self.seen_bytes < self.size_bytes


class Examined(NamedTuple):
    """A diagnosis; whether one of the commands finds something; and the errors of what could not be read."""

    diagnosis: Diagnosis
    is_well: bool
    failures: list[AccessError]


class _Part(NamedTuple):
    """A log, or its newest segment: the path to verify and to measure, and the first offset to account for."""

    partition: TopicPartition
    path: Path
    start: int
    size_bytes: int
    written_s: float


def examine(path: Path, progress: Progress, *, whole: bool | None = None, clock: Clock | None = None) -> Examined:
    """Looks at a folder or a file; at all of it, at a part, or (None) at a part if it is large. Raises AccessError if
    there is nothing to look at, UsageError for the directory of a whole cluster.
    """
    ensure_there(path)
    clock = clock or SystemClock()
    started_ms = clock.monotonic_ms()
    hint = "name a data directory (an entry of log.dirs) that you may read"
    reader = DirectoryReader(path, hint=hint) if path.is_dir() else None
    look = _Look(path, reader, progress, clock.now_ms(), whole=whole)
    look.run()
    look.found.seconds = (clock.monotonic_ms() - started_ms) / 1000
    look.found.advice = list(islice(_advice(look), _MOST_ADVICE))
    return Examined(look.found, look.is_well, look.failures)


class _Look:
    """One look at a path; owned by one task."""

    def __init__(
        self, path: Path, reader: DirectoryReader | None, progress: Progress, now_ms: int, *, whole: bool | None
    ) -> None:
        self.path, self.reader, self._progress, self.now_ms = path, reader, progress, now_ms
        self.root = path.parent if reader is None else reader.root
        self.holder = find_lock_holder(self.root)
        self.is_root = reader is not None and self.root == path
        self.image: MetadataImage | None = None
        self.failures: list[AccessError] = []
        self.findings: list[Finding] = []
        self.lost_of: Counter[TopicPartition] = Counter()
        self._gaps: Counter[str] = Counter()
        self._beside: list[Finding] = []
        self._known = KnownOffsetsOfDirectory(self.root)
        self.found = Diagnosis(str(path), self._kind())
        self.found.size_bytes = size_to_check(path)
        self.found.records = None if reader is None else 0
        self._is_whole = self.found.size_bytes <= MOST_BYTES if whole is None or reader is None else whole

    @property
    def is_well(self) -> bool:
        return not (self.findings or self._beside or self.found.lost)

    @property
    def partitions(self) -> dict[TopicPartition, Path]:
        return {} if self.reader is None else self.reader.partitions

    def _kind(self) -> str:
        if self.reader is None:
            return "file"
        if not self.is_root:
            return "partition folder"
        return "data directory" if (self.path / META_PROPERTIES).exists() else "folder of partitions"

    def run(self) -> None:
        self._look_at_logs()
        self._identify()
        if self.is_root:
            self._list_beside()

    # --- the logs

    def _look_at_logs(self) -> None:
        found = self.found
        parts = self._parts()
        if self._is_whole:
            found.seen_bytes = found.size_bytes
            self.findings = list(self._verified(self.path))
        else:
            others = self._others()
            found.seen_bytes = sum(map(size_to_check, (path for path in others if path.is_dir())))
            found.seen_bytes += sum(part.size_bytes for part in parts)
            paths = [*others, *(part.path for part in parts)]
            self.findings = list(skip_unreadable(paths, self._verified, self.failures))
        found.findings = dict(Counter(one.code.value for one in self.findings))
        found.records_at_stake = sum(one.records or 0 for one in self.findings)
        for account in skip_unreadable(parts, self._account, self.failures):
            found.hidden_records += account["hidden_records"]
            found.records = (found.records or 0) + account["records"] + account["hidden_records"]
        found.gap_reasons = dict(self._gaps)
        found.lost = self.lost_of.total()
        found.offsets_without_record = self._gaps.total() - self._gaps[GapReason.TRIMMED] - found.hidden_records
        own = [self.path] if self.path.suffix == LOG_SUFFIX else []
        measured = own if self.reader is None else [part.path for part in parts]
        deque(skip_unreadable(measured, self._measure, self.failures), maxlen=0)

    def _parts(self) -> list[_Part]:
        """Returns what to look at, and counts what is there; of a part, the logs that were written last come first."""
        found, parts = self.found, []
        sizes: Counter[str] = Counter()
        for partition, folder in self.partitions.items():
            try:
                logs = [(base, log, log.stat()) for base, log in find_offset_files(folder, LOG_SUFFIX)]
            except OSError:  # verify reports it
                logs = []
            size_bytes = sum(stat.st_size for _, _, stat in logs)
            found.segments += len(logs)
            sizes[partition.topic] += size_bytes
            written_s = max((stat.st_mtime for _, _, stat in logs), default=0.0)
            if self._is_whole or len(logs) < 2:
                parts.append(_Part(partition, folder, 0, size_bytes, written_s))
            else:
                base, log, stat = logs[-1]
                parts.append(_Part(partition, log, base, stat.st_size, written_s))
        found.partitions, found.topics, found.topic_bytes = len(parts), len(sizes), dict(sizes.most_common())
        if self._is_whole:
            return parts
        parts.sort(key=lambda part: -part.written_s)
        ends = accumulate(part.size_bytes for part in parts)
        return [part for part, end in zip(parts, ends, strict=True) if end <= MOST_BYTES or part is parts[0]]

    def _others(self) -> list[Path]:
        """Returns the small files beside the partitions, and the metadata log."""
        if not self.is_root:
            return []
        metadata = self.path / f"{CLUSTER_METADATA_TOPIC}-0"
        entries = [one for one in os.scandir(self.path) if not is_folder(one)]
        small = sorted(path for path in map(Path, entries) if kind_of(path) is not None)
        return [*small, metadata] if metadata.is_dir() else small

    def _verified(self, path: Path) -> Iterator[Finding]:
        try:
            yield from verify(path, self._read)
        except AccessError as error:
            if path == self.path:
                error.hint = _find_hint(path) or error.hint
            raise

    def _read(self, size_bytes: int) -> None:
        self._progress.add(size_bytes, size_bytes)

    def _account(self, part: _Part) -> Iterable[dict[str, Any]]:
        assert self.reader is not None, "a single file has no parts"
        place = LogPlace(self.reader, [part.partition])
        self._read(part.size_bytes)
        return accounts_of(place, part.start, None, self._beside, read_committed=True, on_gap=self._note)

    def _note(self, partition: TopicPartition, gap: Gap) -> None:
        self._gaps[gap.reason.value] += gap.end - gap.start
        if gap.reason in LOSING_REASONS:
            self.lost_of[partition] += gap.end - gap.start
        known = self.found.open_transactions
        if gap.reason is GapReason.OPEN and (not known or known[-1].partition != str(partition)):
            assert self.reader is not None, "a single file has no gaps"
            with contextlib.closing(self.reader.open(partition)) as log:
                since_ms = next((batch.max_timestamp for batch in log.headers(gap.start)), -1)
            known.append(OpenTransaction(str(partition), gap.start, since_ms))

    def _measure(self, path: Path) -> Iterator[None]:
        found = self.found
        stats = read_stats(path, self.now_ms, self._read, self._known, counts_readers=False)
        found.batches += stats.batches
        found.future_batches += stats.future_batches
        if self.reader is None:
            found.segments = len(stats.segments)
        if stats.last_timestamp >= 0:
            found.last_timestamp = max(found.last_timestamp, stats.last_timestamp)
            first = stats.first_timestamp
            found.first_timestamp = first if found.first_timestamp < 0 else min(found.first_timestamp, first)
        yield

    # --- whose it is

    def _identify(self) -> None:
        found, root = self.found, self.root
        meta = _read_meta(root)
        others = _find_siblings(root, meta) if meta is not None else []
        self.image = next(filter(None, map(_read_image, [root, *others])), None)
        if self.holder is not None:
            found.served_by = str(self.holder) if self.holder.pid else "Kafka, it seems (its lock is held)"
            found.server = self.holder.address or None
        if meta is None:
            return
        found.cluster_id, found.node_id = meta.cluster_id or None, meta.node_id
        found.written_by = _writer(meta, self.image)
        if self.holder is None:
            found.was_stopped_cleanly = (root / CLEAN_SHUTDOWN).exists()
        elif not self.holder.pid:
            found.server = _registered_address(meta, self.image)
        if self.image is not None:
            found.metadata_version = self.image.features.get(METADATA_VERSION_FEATURE)
            found.security = _security(meta, self.image)
        if self.is_root:
            found.elsewhere = [str(one) for one in others]
            self._compare(meta)

    def _compare(self, meta: MetaProperties) -> None:
        if self.image is None:
            return
        if not (self.root / WAS_MEMBER).exists():
            unknown = [one for one in self.partitions if self.image.find_partition(one) is None]
            self.found.unknown_partitions = [str(one) for one in sorted(unknown)]
        for topic in self.image.topics.values():
            for number, record in topic.partitions.items():
                partition = TopicPartition(topic.name, number)
                if meta.node_id not in record.replicas or partition in self.partitions:
                    continue
                ids = dict(zip(record.replicas, record.directories, strict=False))
                id_ = ids.get(meta.node_id, meta.directory_id)
                is_elsewhere = id_ != meta.directory_id and id_ > _LAST_RESERVED_ID
                found = self.found.partitions_elsewhere if is_elsewhere else self.found.absent_partitions
                found.append(str(partition))

    def _list_beside(self) -> None:
        counts: Counter[str] = Counter()
        for entry in os.scandir(self.path):
            for suffix, why in _RENAMED.items():
                if entry.name.endswith(suffix) and is_folder(entry):
                    counts[f"folder *{suffix} ({why})"] += 1
        for folder in self.partitions.values():
            with contextlib.suppress(OSError):
                for entry in os.scandir(folder):
                    for part, why in _LEFT_BEHIND.items():
                        if part in entry.name:
                            counts[f"file *{part}{'*' * part.endswith('-')} ({why})"] += 1
        self.found.beside = dict(sorted(counts.items()))
        self.found.unchecked = [path.name for path in find_unchecked(self.path)]


def _find_hint(path: Path) -> str | None:
    """Finds what the user may have meant with a path that holds nothing."""
    if path.is_file():
        import tarfile

        if not tarfile.is_tarfile(path):
            return None
        folder = shlex.quote(path.name.split(".")[0])
        return f"it is an archive: mkdir {folder} && tar -xf {shlex.quote(str(path))} -C {folder}"
    below = (one for pattern in ("*/", "*/*/") for one in sorted(path.glob(pattern)) if _is_data_directory(one))
    names = [shlex.quote(str(one)) for one in islice(below, _MOST_ADVICE)]
    return f"did you mean {' or '.join(names)}?" if names else None


def _is_data_directory(path: Path) -> bool:
    with contextlib.suppress(PlogError, OSError):
        return (path / META_PROPERTIES).exists() or bool(find_partition_folders(path))
    return False


def _writer(meta: MetaProperties, image: MetadataImage | None) -> str:
    """Returns who was the last to start on the directory, as its own registration tells."""
    if not meta.version:
        return "Kafka with ZooKeeper, or plog in such a cluster"
    if image is None:
        return "Kafka with KRaft, whose metadata log is not here: in another of its log.dirs, or not copied"
    broker = image.brokers.get(meta.node_id)
    if broker is None:
        return f"Kafka with KRaft, {'a controller' if meta.node_id in image.controllers else 'not registered yet'}"
    levels = {one.name: (one.min_supported_version, one.max_supported_version) for one in broker.features}
    if levels.keys() == SUPPORTED_FEATURES.keys():
        return "plog"
    return f"Kafka {find_release(levels) or 'newer than 4.4'} with KRaft"


def _security(meta: MetaProperties, image: MetadataImage) -> str:
    broker = image.brokers.get(meta.node_id)
    numbers = sorted({one.security_protocol for one in broker.end_points} - {0}) if broker is not None else []
    protocols = [_PROTOCOLS[number] for number in numbers if number < len(_PROTOCOLS)]
    return "; ".join(filter(None, [", ".join(protocols), image.security.summary()]))


def _registered_address(meta: MetaProperties, image: MetadataImage | None) -> str | None:
    broker = None if image is None else image.brokers.get(meta.node_id)
    open_ones = [one for one in broker.end_points if not one.security_protocol] if broker is not None else []
    return str(Endpoint(open_ones[0].host, open_ones[0].port)) if open_ones else None


def _read_meta(directory: Path) -> MetaProperties | None:
    with contextlib.suppress(PlogError, OSError):
        return read_meta_properties(directory)
    return None


def _read_image(directory: Path) -> MetadataImage | None:
    if (directory / f"{CLUSTER_METADATA_TOPIC}-0").is_dir():
        from core.cluster.image.metadata_log import read_metadata_image  # with it comes the log engine

        with contextlib.suppress(PlogError, OSError):
            return read_metadata_image(directory)
    return None


def _find_siblings(root: Path, meta: MetaProperties) -> list[Path]:
    found = []
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(root.absolute().parent), key=lambda one: one.name):
            other = _read_meta(Path(entry.path)) if is_folder(entry) else None
            if other is not None and (other.cluster_id, other.node_id) == (meta.cluster_id, meta.node_id):
                found += [root.parent / entry.name] if other.directory_id != meta.directory_id else []
    return found


# --- what is worth doing


def _advice(look: _Look) -> Iterator[Advice]:
    """Yields what is worth doing, the most important first."""
    yield from _about_damage(look)
    yield from _about_transactions(look)
    yield from _about_more(look)
    yield from _about_a_server(look.found)
    yield from _about_sound_logs(look)


def _plog(*words: str | Path) -> list[str]:
    return ["plog", *map(str, words)]


def _about_damage(look: _Look) -> Iterator[Advice]:
    found, path = look.found, look.path
    if look.is_well:
        return
    codes = {one.code for one in look.findings}
    if found.lost:
        why = "keep an account of what is lost, and the proof, before anything changes"
        yield Advice(why, _plog("gaps", path, "--lost", "--certificate", "lost.json"))
    if not found.findings:
        yield Advice("decode every record, and see which can't be read", _plog("verify", "--deep", path))
    elif not found.lost:
        yield Advice("see each finding: which file, where, and why", _plog("verify", path))
    if look.reader is not None and codes - _NOT_FOR_RECOVER:
        first = "whoever serves it has to stop first; " if look.holder is not None else ""
        fix = ["--fix-bits"] if any(one.fix is not None for one in look.findings) else []
        why = f"{first}see what a repair would keep; it changes nothing without --apply"
        yield Advice(why, _plog("recover", path, *fix))
    for misnamed in [one.path for one in look.findings if one.code is Code.FOLDER_MISNAMED][:1]:
        yield Advice("see whose log this is: it needs a name, or to be elsewhere", _plog("doctor", misnamed))
    if found.lost and (look.is_root or locate_partition(path)[0] is not None):
        ((worst, _),) = look.lost_of.most_common(1)
        options = ["--data-dir", str(look.root), "--no-exit-on-error", "--format", "envelope", "--out", "saved.ndjson"]
        why = f"save what can be read of {worst.topic}, which has lost most"
        yield Advice(why, _plog("consume", worst.topic, *options))


def _about_transactions(look: _Look) -> Iterator[Advice]:
    for one in look.found.open_transactions[:1]:
        if look.holder is not None and look.now_ms - one.since_ms < _USUAL_TRANSACTION_MS:
            return
        where = _server(look.found) or ["--data-dir", str(look.root)]
        why = f"see whose transaction readers of {one.partition} wait for"
        yield Advice(why, _plog("transaction", "find-hanging", "--all", *where))


def _about_more(look: _Look) -> Iterator[Advice]:
    found = look.found
    for one in found.elsewhere:
        yield Advice("look at another directory of the same broker", _plog("doctor", one))
    if found.is_partial:
        yield Advice("look at all of it", _plog("doctor", "--whole", look.path))
    for unknown in found.unknown_partitions[:1]:
        why = f"look at {unknown} before a start of Kafka sets it aside: the metadata know no such topic"
        yield Advice(why, _plog("doctor", look.path / unknown))
    strays = [one.path for one in os.scandir(look.path) if one.name.endswith("-stray")] if look.is_root else []
    for stray in sorted(strays)[:1]:
        yield Advice("see what a broker set aside, before somebody deletes it", _plog("doctor", stray))


def _server(found: Diagnosis) -> list[str]:
    return [] if found.server is None else ["--bootstrap-server", found.server]


def _about_a_server(found: Diagnosis) -> Iterator[Advice]:
    if server := _server(found):
        yield Advice("ask the server for its topics", _plog("topic", "list", *server))
        yield Advice("see who reads them, and how far", _plog("group", "list", *server))


def _about_sound_logs(look: _Look) -> Iterator[Advice]:
    path = look.path
    if look.reader is None:
        if kind_of(path) is not None:
            yield Advice("print what is in it", _plog("dump-segment", path))
        if parse_offset_file_name(path.name) is not None:
            yield Advice("look at the whole partition, which tells more", _plog("doctor", path.parent))
        return
    if look.is_root and not look.partitions:
        if look.image is not None:
            yield Advice("see what the cluster's metadata have", _plog("topic", "list", "--data-dir", path))
            yield Advice("print the metadata", _plog("dump-segment", path / f"{CLUSTER_METADATA_TOPIC}-0"))
        return
    if look.found.kind == "data directory":
        if not look.found.server:
            yield Advice("see its topics", _plog("topic", "list", "--data-dir", path))
        if look.holder is None:
            options = ["--read-only", "--data-dir", str(path), "--listen", "127.0.0.1:9099"]
            yield Advice("let Kafka's clients read it; no byte changes", _plog("serve", *options))
    else:
        yield Advice("walk through it with the arrow keys", _plog("inspect", path))
    if look.found.batches:
        yield Advice("decode every record, and check it", _plog("verify", "--deep", path))
        yield Advice("see what it is made of, in pictures", _plog("stats", path, "--html", "report.html"))
