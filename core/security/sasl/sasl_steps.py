"""The client's steps of SASL mechanisms, bytes in, bytes out, no I/O: PLAIN's and OAUTHBEARER's; scram.py has SCRAM's.

A client sends `first`, and then the answer to each message of the server, until an answer is None: then the server is
satisfied, and has proven itself if the mechanism lets it. AuthenticationError means that the server's message is wrong.
The caller adds Kafka's frames around the messages (SaslAuthenticate).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Protocol

from core.common.errors import AuthenticationError, UsageError


class ClientSteps(Protocol):
    """One authentication of one client; owned by one task."""

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Returns the answer, or None if the exchange is over. Raises AuthenticationError for an invalid message."""


def wrong_message(mechanism: str, what: str) -> AuthenticationError:
    return AuthenticationError(f"the server's {mechanism} message is wrong: {what}")


class PlainClient:
    """PLAIN (RFC 4616): the client sends `authzid NUL name NUL password`, the server answers with nothing. Owned by one
    task.

    Kafka takes an authorization id only if it is empty or the name.
    """

    def __init__(self, name: str, password: str) -> None:
        """Raises UsageError if either holds a NUL, which separates the two."""
        if "\0" in name or "\0" in password:
            raise UsageError("a name or password of PLAIN can't hold a NUL")
        self._name = name
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._name}\0{self._password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise wrong_message("PLAIN", f"{len(challenge)} bytes where none are due")
        return None


_SEPARATOR = "\x01"
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")
_TOKEN = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_MOST_ERROR_BYTES = 4096


class OAuthBearerClient:
    """OAUTHBEARER (RFC 7628): the client sends a token from a third party, and the server accepts or refuses it.

    client   n,[a=name],^Aauth=Bearer TOKEN[^AKEY=VALUE..]^A^A    (^A is the byte 1; KEY=VALUE are KIP-342's extensions)
    server   nothing, or {"status":"invalid_token",..}; the client answers with ^A then, and the server fails

    Owned by one task. After a refused token the server's own last word fails the login; `refusal` has its first.
    """

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """Raises UsageError for characters that can't be sent; the message does not show the token."""
        if not _TOKEN.fullmatch(token):
            raise UsageError("the OAUTHBEARER token holds characters that a token can't have")
        for key, value in (extensions or {}).items():
            if not _KEY.fullmatch(key) or key.lower() == "auth" or not _VALUE.fullmatch(value):
                raise UsageError(f"the OAUTHBEARER extension {key!r} can't be sent")
        self._token = token
        self._extensions = dict(extensions or {})
        self.refusal: str | None = None

    def first(self) -> bytes:
        pairs = {"auth": f"Bearer {self._token}", **self._extensions}
        return f"n,,{_SEPARATOR}{''.join(f'{k}={v}{_SEPARATOR}' for k, v in pairs.items())}{_SEPARATOR}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self.refusal is not None:
            raise AuthenticationError(f"the server refused the token: {self.refusal}")
        if not challenge:
            return None
        self.refusal = _refusal(challenge)
        return _SEPARATOR.encode()


def _refusal(challenge: bytes) -> str:
    if len(challenge) > _MOST_ERROR_BYTES:
        raise wrong_message("OAUTHBEARER", f"{len(challenge)} bytes, expected at most {_MOST_ERROR_BYTES}")
    try:
        found = json.loads(challenge)
    except (ValueError, RecursionError):
        raise wrong_message("OAUTHBEARER", "it is no JSON") from None
    if not isinstance(found, dict) or not isinstance(found.get("status"), str):
        raise wrong_message("OAUTHBEARER", "it names no status")
    return " ".join(f"{key}={found[key]}" for key in ("status", "scope", "openid-configuration") if found.get(key))
