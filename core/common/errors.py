"""plog's exceptions: a small tree, each with fields, not only text.

PlogError
├── UsageError            the user asked for something that makes no sense
│   └── BrokerAwayError       a named broker that is not in the cluster now
├── AccessError           something could not be read, written, locked or connected to
│   ├── DirectoryLockedError
│   ├── ConnectionFailedError
│   │   └── UnansweredError   nothing broke, but no answer came in time
│   └── AuthenticationError   the identity of the peer, or ours, could not be proven
├── DamagedAnswerError    the answer rests on damaged logs, which were reported
├── CorruptRecordError    bytes that break the format, with where they lie
│   └── UnreadableFileError   bytes that the system can't read
├── MalformedMessageError a protocol message that does not decode
└── KafkaError            an error that has one of Kafka's codes and goes to the client
    └── InvalidRecordsError   with the records of a batch that are to blame

The CLI turns each into a message, a hint and an exit code (`exit_code`).
"""

from __future__ import annotations

import copyreg
from collections.abc import Collection, Sequence

from core.common.error_code import ErrorCode

_MOST_CHARACTERS = 2000
"""Limit of the message of a `KafkaError`."""


class PlogError(Exception):
    """An error that plog raises on purpose: `message` says what, where and what was expected; `hint` what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # the hint may come later
        """Returns the lines that tracebacks show below the message (PEP 678), as Spark's do."""
        return [f"hint: {self.hint}"] if self.hint else []

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the error as it is: a subclass may have made the message of other arguments."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UsageError(PlogError):
    """The command, option or value makes no sense as given."""

    exit_code = 2


class BrokerAwayError(UsageError):
    """A request for a broker that is not in the cluster now: it is down, or never existed."""

    def __init__(self, broker_id: int, living: Collection[int]) -> None:
        super().__init__(
            f"broker {broker_id} is not in the cluster; the live brokers are {', '.join(map(str, sorted(living)))}",
            hint="plog cluster brokers",
        )
        self.broker_id = broker_id


class DamagedAnswerError(PlogError):
    """An answer that rests on damaged logs; the damage was reported before."""


class AccessError(PlogError):
    """A file, directory or peer could not be read, written or reached; `where` is its path or address."""

    exit_code = 3

    def __init__(self, message: str, *, where: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.where = where


class DirectoryLockedError(AccessError):
    """Another process owns the data directory; `holder` is from its `.lock` (address and pid)."""

    def __init__(self, message: str, *, where: str, holder: str, hint: str | None = None) -> None:
        super().__init__(message, where=where, hint=hint)
        self.holder = holder


class ConnectionFailedError(AccessError):
    """A broker could not be reached, or closed the connection in the middle of an answer."""


class UnansweredError(ConnectionFailedError):
    """A broker did not answer in time. It may make the requested change all the same."""


class UnreachableAddressError(AccessError):
    """Servers answer, and none of the addresses that they advertise can be reached from here."""


class AuthenticationError(AccessError):
    """A server did not prove who it is, or refused our proof in a way that has no code of Kafka's (a TLS alert, a token
    that can't be had). Trying again does not help.
    """


class CorruptRecordError(PlogError):
    """Bytes that break the record format.

    `position` is where the damaged batch starts, in bytes from the start of `path` (or of the buffer, if there is no
    path); `offset` is the base offset it claims, -1 when that cannot be read.
    """

    def __init__(self, cause: str, *, position: int = -1, offset: int = -1, path: str = "") -> None:
        where = "".join(
            (
                f" in {path}" if path else "",
                f" at position {position}" if position >= 0 else "",
                f" (offset {offset})" if offset >= 0 else "",
            )
        )
        super().__init__(cause + where)
        self.cause = cause
        self.position = position
        self.offset = offset
        self.path = path

    def in_file(self, path: object) -> CorruptRecordError:
        """Returns the same error with its position in that file."""
        return type(self)(self.cause, position=self.position, offset=self.offset, path=str(path))


class UndecodableError(CorruptRecordError):
    """The checksum of a batch is right, but its records do not decode: it was written so, and can't be repaired."""


class UnreadableFileError(CorruptRecordError):
    """A file, or a part of it, that the system can't read: a bad sector, a permission, a dangling link, a file that is
    not regular. `position` is where the unreadable bytes begin, -1 for the whole file; `errno` is the system's number.
    """

    def __init__(self, reason: str, *, errno: int = 0, path: str = "", position: int = -1, offset: int = -1) -> None:
        where = "" if position < 0 else f" at position {position}"
        PlogError.__init__(
            self,
            f"could not read {path}{where}: {reason}",
            hint="plog verify names every file that can't be read; plog recover mends round bad sectors",
        )
        self.cause = f"could not be read: {reason}"
        self.errno = errno
        self.position = position
        self.offset = offset
        self.path = path

    def in_file(self, path: object) -> CorruptRecordError:  # noqa: ARG002 - it knows its file
        return self


class MalformedMessageError(PlogError):
    """A request, response or metadata record whose bytes do not follow its schema."""


class KafkaError(PlogError):
    """An error with Kafka's own code; handlers copy `code` into the answer of the one partition or topic it is of. A
    message that quotes very much of a request is cut, and says so: an answer takes 32,767 bytes, and others are in it.
    """

    def __init__(self, code: ErrorCode, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(_cut(message or code.text), hint=hint)
        self.code = code
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            self.exit_code = AccessError.exit_code


def ensure_success(code: int, what: str, message: str | None = None) -> None:
    """Raises KafkaError for a code that is not NONE; of a missing right it names `what`, which brokers do not."""
    if code:
        is_named = "_AUTHORIZATION_" not in (error := ErrorCode.of(code)).name and message
        raise KafkaError(error, message if is_named else f"{what}: {message or error.text}")


def _cut(message: str) -> str:
    if len(message) <= _MOST_CHARACTERS + len(" ... (9,999,999 more characters)"):  # one that was cut stays as it is
        return message
    return f"{message[:_MOST_CHARACTERS]} ... ({len(message) - _MOST_CHARACTERS} more characters)"


class InvalidRecordsError(KafkaError):
    """Some records of a batch are wrong, and no record of it was kept. `records`: the number in the batch of each that
    is wrong, and why, of the first ones at least (KIP-467).
    """

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records
