"""Retries of the client: the pauses, the limit, the notice that users get, and the errors that are retried.

The pauses are Kafka's (KIP-580): `retry.backoff.ms`, then twice as long each time up to `retry.backoff.max.ms`, a fifth
longer or shorter at random, so that clients that failed together do not come back together.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Container
from typing import Any, TypeVar

from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError

FAILOVER_SECONDS = 30.0
"""How long to wait for another broker to take over: metadata name a dead one until its session ends, by default after
18 s (zookeeper.session.timeout.ms).
"""

METADATA_SECONDS = 5.0
"""How long to wait for a broker whose metadata lag behind the controller's."""

NOTICE_SECONDS = 3.0
"""How long a delay lasts before the user is told: leader changes usually take less."""

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Codes of errors that may be gone at the next try."""

Result = TypeVar("Result")
Failure = KafkaError | ConnectionFailedError


class Retry:
    """The tries of one thing, from the first failure to `end`; owned by one task."""

    def __init__(
        self,
        seconds: float = 10.0,
        *,
        first_s: float = 0.1,
        most_s: float = 1.0,
        tell: Callable[[str], None] | None = None,
        notice_s: float = NOTICE_SECONDS,
    ) -> None:
        """`seconds` is the limit from the first failure on. `tell` is called once with the error after `notice_s`."""
        self._seconds = seconds
        self._first_s = self._pause_s = first_s
        self._most_s = most_s
        self._tell = tell
        self._notice_s = notice_s
        self._since_s: float | None = None
        self._is_told = False

    def note(self, error: Exception | None = None, since_s: float | None = None) -> bool:
        """Notes a failed try; returns False at the limit. The delay began at `since_s` (`time.monotonic`), or now."""
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s if since_s is None else since_s
        delay_s = now_s - self._since_s
        if delay_s >= self._seconds:
            return False
        if self._tell is not None and not self._is_told and delay_s >= self._notice_s:
            self._is_told = True
            how_long = "until it is back" if self._seconds == math.inf else f"for {self._seconds:g} s"
            self._tell(f"{error}; it is tried again {how_long}")
        return True

    def wait(self, error: Exception | None = None, since_s: float | None = None) -> bool:
        """Notes a failed try, and pauses before the next one; returns False at once if the limit is reached."""
        if not self.note(error, since_s):
            return False
        assert self._since_s is not None
        left_s = self._since_s + self._seconds - time.monotonic()
        pause_s = self._pause_s * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        time.sleep(max(min(pause_s, self._most_s, left_s), 0))
        self._pause_s = min(2 * self._pause_s, self._most_s)
        return True

    def end(self) -> float | None:
        """Notes a success; returns the seconds of the delay if the user was told of it."""
        delay_s = time.monotonic() - self._since_s if self._is_told and self._since_s is not None else None
        self._since_s, self._pause_s, self._is_told = None, self._first_s, False
        return delay_s

    def call(
        self,
        work: Callable[[], Result],
        on: Container[ErrorCode] | type[Failure] = RETRIABLE,
        before_next: Callable[[Any], None] = lambda _error: None,
    ) -> Result:
        """Returns what `work` returns, at the first try that does not fail with one of these codes, or with this kind
        of error. `before_next` is called with each such error, and may raise another one. Raises the last error if the
        limit is reached.
        """
        while True:
            try:
                return work()
            except (KafkaError, ConnectionFailedError) as error:
                is_retried = isinstance(error, on) if isinstance(on, type) else getattr(error, "code", None) in on
                if not is_retried:
                    raise
                before_next(error)
                if not self.wait(error):
                    raise

    def until(self, find: Callable[[], Result | None]) -> Result | None:
        """Calls `find` until it returns something else than None; returns that, or None once the limit is reached."""
        while (found := find()) is None and self.wait():
            pass
        return found
