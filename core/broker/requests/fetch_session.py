"""Fetch sessions (KIP-227): the broker remembers the partitions that a client fetches, and answers only with changes.

A client asks for a session with epoch 0, and gets an id. From then on its requests name only partitions that are new,
changed or forgotten, with epochs that count up; answers hold only partitions that have records, an error or other
watermarks than the client knows. If there is no room the id is 0, and the client goes on with full requests. Epoch -1
ends a session, and is sent by clients without one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.common.clock import Clock
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchTopic, PartitionData
from core.security.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Iterable

_INITIAL_EPOCH = 0
_FINAL_EPOCH = -1
_MAX_ID = 0x7FFFFFFF
_SAFE_MS = 120_000
"""How long a session can't be evicted, after its creation and after its last use."""
MAX_PARTITIONS = 200_000
"""The limit for the partitions of all sessions together: some 100 MB."""

_Key = tuple[str | bytes, int]  # a topic's name, or from version 13 its id; a partition


@dataclass(slots=True)
class _CachedPartition:
    """A partition as the client requests it, and the watermarks that it got last; -1 if it must get them again.
    `wanted` holds the high watermark that the client knows.
    """

    topic: str
    topic_id: bytes
    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1


class FetchSession:
    """Owned by its cache."""

    def __init__(self, session_id: int, principal: Principal, now_ms: int, *, uses_topic_ids: bool) -> None:
        self.session_id = session_id
        self.principal = principal
        self.uses_topic_ids = uses_topic_ids
        self.epoch = _INITIAL_EPOCH
        """That of the last request."""
        self.created_ms = self.last_used_ms = now_ms
        self.partitions: dict[_Key, _CachedPartition] = {}
        """The client's partitions, in the order in which they are read."""

    @property
    def next_epoch(self) -> int:
        return 1 if self.epoch == _MAX_ID else self.epoch + 1

    def update(self, request: FetchRequest) -> None:
        """Adds and changes the partitions that the request names, and removes those that it forgets."""
        for topic in request.topics:
            for wanted in topic.partitions:
                key = topic.topic_id if self.uses_topic_ids else topic.topic, wanted.partition
                known = self.partitions.get(key)
                if known is None:
                    self.partitions[key] = _CachedPartition(topic.topic, topic.topic_id, wanted)
                else:
                    wanted.high_watermark = known.wanted.high_watermark
                    known.wanted = wanted
        if request.session_epoch == _INITIAL_EPOCH:
            return  # a new session has nothing to forget, whatever the request says
        for forgotten in request.forgotten_topics_data:
            topic_key = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for number in forgotten.partitions:
                self.partitions.pop((topic_key, number), None)

    def topics(self) -> list[FetchTopic]:
        """Returns all partitions of the session, in the order in which the response is filled."""
        topics: list[FetchTopic] = []
        for cached in self.partitions.values():
            if not topics or (topics[-1].topic, topics[-1].topic_id) != (cached.topic, cached.topic_id):
                topics.append(FetchTopic(cached.topic, cached.topic_id, []))
            topics[-1].partitions.append(cached.wanted)
        return topics

    def without_unchanged(self, responses: Iterable[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
        """Returns the responses with only the partitions that have news for the client, which count as known from now
        on. Partitions with records come last the next time, so that each gets its turn.
        """
        news = []
        for topic in responses:
            key = topic.topic_id if self.uses_topic_ids else topic.topic
            partitions = [data for data in topic.partitions if self._is_news((key, data.partition_index), data)]
            if partitions:
                news.append(FetchableTopicResponse(topic.topic, topic.topic_id, partitions))
        return news

    def _is_news(self, key: _Key, data: PartitionData) -> bool:
        cached = self.partitions[key]
        was_sent = cached.high_watermark, cached.log_start_offset
        cached.high_watermark = -1 if data.error_code else data.high_watermark
        cached.log_start_offset = data.log_start_offset
        cached.wanted.high_watermark = cached.high_watermark
        if data.records:
            self.partitions[key] = self.partitions.pop(key)
        return (
            bool(data.records or data.error_code)
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
            or was_sent != (data.high_watermark, data.log_start_offset)
        )


class FetchSessionCache:
    """The sessions of a broker, `slots` at most (`max.incremental.fetch.session.cache.slots`); owned by its task."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._sessions: dict[int, FetchSession] = {}  # the last used one comes last
        self.cached_partitions = 0
        """The number of partitions of all sessions."""
        self.evictions = 0
        """How many sessions were removed to make room."""

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, request: FetchRequest, principal: Principal, *, uses_topic_ids: bool) -> FetchSession | None:
        """Finds the session of a request, and updates it; returns None if the request is sessionless. Only the
        principal that began a session can find it.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR. Then
        the client starts a new session.
        """
        if request.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            if request.session_id and self._is_of(request.session_id, principal):
                self._remove(request.session_id)
            is_new = request.session_epoch == _INITIAL_EPOCH
            return self._create(request, principal, uses_topic_ids=uses_topic_ids) if is_new else None
        session = self._sessions.get(request.session_id)
        if session is None or session.principal != principal:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.next_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if uses_topic_ids != session.uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = request.session_epoch
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        before = len(session.partitions)
        session.update(request)
        self.cached_partitions += len(session.partitions) - before
        if self.cached_partitions > MAX_PARTITIONS:
            self._remove(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._remove(session.session_id)
            return None
        return session

    def _is_of(self, session_id: int, principal: Principal) -> bool:
        session = self._sessions.get(session_id)
        return session is not None and session.principal == principal

    def _create(self, request: FetchRequest, principal: Principal, *, uses_topic_ids: bool) -> FetchSession | None:
        now_ms = self._clock.monotonic_ms()
        session = FetchSession(self._unused_id(), principal, now_ms, uses_topic_ids=uses_topic_ids)
        session.update(request)
        size = len(session.partitions)
        if self.cached_partitions + size > MAX_PARTITIONS or not self._make_room(size, now_ms):
            return None
        self._sessions[session.session_id] = session
        self.cached_partitions += size
        return session

    def _unused_id(self) -> int:
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = secrets.randbelow(_MAX_ID) + 1
        return session_id

    def _make_room(self, size: int, now_ms: int) -> bool:
        """Makes a slot for a session of `size` partitions, by evicting one that was not used for long, or an older,
        smaller one: larger sessions save more.
        """
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        loser = next(iter(self._sessions.values()))
        if now_ms - loser.last_used_ms <= _SAFE_MS:
            old = [session for session in self._sessions.values() if now_ms - session.created_ms > _SAFE_MS]
            loser = min(old, key=lambda session: len(session.partitions), default=loser)
            if not old or len(loser.partitions) >= size:
                return False
        self._remove(loser.session_id)
        self.evictions += 1
        return True

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.cached_partitions -= len(session.partitions)
