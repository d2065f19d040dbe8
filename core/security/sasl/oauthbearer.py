"""OAUTHBEARER (RFC 7628): the client sends a token from a third party, and the server accepts or refuses it.

client   n,[a=name],^Aauth=Bearer TOKEN[^AKEY=VALUE..]^A^A        (^A is the byte 1; KEY=VALUE are KIP-342's extensions)
server   nothing, or {"status":"invalid_token",..}; the client answers with ^A then, and the server fails
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from core.common.errors import AuthenticationError, UsageError
from core.security.sasl.sasl_steps import wrong_message

MECHANISM = "OAUTHBEARER"

_SEPARATOR = "\x01"
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")
_TOKEN = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_MOST_ERROR_BYTES = 4096


class OAuthBearerClient:
    """Owned by one task. After a refused token the server's own last word fails the login; `refusal` has its first."""

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
        raise wrong_message(MECHANISM, f"{len(challenge)} bytes, expected at most {_MOST_ERROR_BYTES}")
    try:
        found = json.loads(challenge)
    except (ValueError, RecursionError):
        raise wrong_message(MECHANISM, "it is no JSON") from None
    if not isinstance(found, dict) or not isinstance(found.get("status"), str):
        raise wrong_message(MECHANISM, "it names no status")
    return " ".join(f"{key}={found[key]}" for key in ("status", "scope", "openid-configuration") if found.get(key))
