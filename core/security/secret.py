"""Values that are never shown by accident."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Collection, Iterator
from urllib.parse import quote, quote_plus

_PART = 8
"""So many characters in a row reveal too much of a longer secret."""

_AUTHORITY = re.compile(r"(?:[^/?#@]*@)?((?:[^/?#@:\[\]]+|\[[^/?#@\]]*\])(?::\d*)?)(?=[/?#]|$)")
"""The user information, host and port of a URL."""


class Secret:
    """Prints as `[hidden]` in text, messages, logs and tracebacks; `reveal` returns the secret. Immutable."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def shown_url(url: str) -> str:
    """Returns the URL without user information, query and fragment, which may hold secrets."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    found = _AUTHORITY.match(rest)
    shown = rest.rpartition("@")[2] if found is None else found[1] + rest[found.end() :]  # a slash in a password
    return scheme + separator + re.split(r"[?#]", shown, maxsplit=1)[0]


def hide_secrets(text: str, secrets: Collection[str], whole: Collection[str] = ()) -> str:
    """Returns a peer's text, or a replacement if it holds a secret or a part of one, also in the encoding of URLs,
    headers, JSON or HTML; parts of texts in `whole` may be shown.
    """
    said = text.lower()
    forms = [form for secret in (*secrets, *whole) if secret for form in _forms(secret)]
    forms += [secret[start : start + _PART] for secret in secrets for start in range(len(secret) - _PART)]
    return "[hidden, as it holds a secret]" if any(form.lower() in said for form in forms) else text


def _forms(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    yield from (secret, quote(data, safe=""), quote(data), quote_plus(data))
    yield from (json.dumps(secret)[1:-1], html.escape(secret), repr(secret)[1:-1])
    yield base64.b64encode(data).decode().rstrip("=")
    yield base64.urlsafe_b64encode(data).decode().rstrip("=")
    yield data.hex()
