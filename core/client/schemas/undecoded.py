"""Keys and values that can't be decoded: they are shown as JSON that says so, and counted.

{"not_decoded": {"base64": "AAAAAAf///8=", "schema_id": 7, "error": "..."}}
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from core.common.errors import PlogError

T = TypeVar("T")

MARKS_HINT = "--no-exit-on-error marks such records, and reads on"
_MOST_NAMED = 5
_BEGIN = re.compile(rb'\s*\{\s*"not_decoded"\s*:')


class SchemaError(PlogError):
    """Bytes do not fit their schema, or text doesn't. `why` is the reason in a few words, and "" if the bytes are not
    to blame: the registry refuses the request. `schema_id` is the one that the bytes or the headers name.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, why: str = "", schema_id: int | str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.why = why
        self.schema_id = schema_id


def converted(convert: Callable[[bytes], T], data: bytes, what: str, *, why: str = "") -> T:
    """Returns the converted data. Raises SchemaError, which begins with `what`, for data that don't fit."""
    try:
        return convert(data)
    except (ValueError, RecursionError) as error:
        problem = "its levels are too many" if isinstance(error, RecursionError) else error
        raise SchemaError(f"{what}: {problem}", why=why) from error


def is_fatal(error: PlogError) -> bool:
    """Returns whether the record is not to blame: the registry does not answer, or refuses."""
    return not isinstance(error, SchemaError) or not error.why


def not_decoded(data: bytes, error: PlogError) -> dict[str, Any]:
    """Returns the JSON that stands for bytes that could not be decoded."""
    found: dict[str, Any] = {"base64": base64.b64encode(data).decode()}
    if isinstance(error, SchemaError) and error.schema_id is not None:
        found["schema_id"] = error.schema_id
    return {"not_decoded": {**found, "error": error.message}}


def not_decoded_text(data: bytes, error: PlogError) -> bytes:
    # a schema may have any text of JSON, surrogates that stand alone too: they are escaped, as JSON does it
    return json.dumps(not_decoded(data, error), ensure_ascii=False).encode(errors="backslashreplace")


def undecoded_bytes(text: bytes) -> bytes | None:
    """Returns the bytes for which `not_decoded_text` stands, or None for any other text."""
    if _BEGIN.match(text) is None:
        return None
    from core.common.lenient_json import read_json

    try:
        (found,) = read_json(text).values()
        return base64.b64decode(found["base64"], validate=True)
    except (ValueError, TypeError, KeyError):
        return None


def describe(side: str, error: PlogError) -> str:
    """Describes the error of a record's `key` or `value`."""
    verb = "is" if error.message.startswith(("not ", "no ")) else "can't be decoded:"
    return f"its {side} {verb} {error.message}"


class UndecodedAccount:
    """Counts shown records, and those that could not be decoded; owned by one task."""

    def __init__(self) -> None:
        self.shown = 0
        self._reasons: Counter[str] = Counter()

    def add(self, error: PlogError, message: str, say: Callable[[str], None]) -> None:
        """Counts one that could not be decoded; reports the first few."""
        if self._reasons.total() < _MOST_NAMED:
            say(f"warning: {message}")
        self._reasons[error.why if isinstance(error, SchemaError) else "without an answer"] += 1

    def summary(self) -> str | None:
        """Returns the counts by kind, or None if all were decoded."""
        if not self._reasons:
            return None
        kinds = ", ".join(f"{count:,} {why}" for why, count in self._reasons.most_common())
        return f"{self._reasons.total():,} of {self.shown:,} not decoded: {kinds}"
