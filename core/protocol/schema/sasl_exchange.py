"""How a client authenticates itself by SASL.

SaslHandshake (API 17): which mechanism of SASL the client will speak (KIP-43, KIP-152). After version 0
the mechanism's messages go over the wire bare; after version 1 they are in SaslAuthenticate.
SaslAuthenticate (API 36): a message of the mechanism's, and the server's answer to it (KIP-152, KIP-368).
"""

from __future__ import annotations

from core.protocol.message import Api, array, binary, int16, int64, message, string


@message(api_key=17, valid="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: str = string()


@message(api_key=17, valid="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array("string")


SASL_HANDSHAKE = Api(SaslHandshakeRequest, SaslHandshakeResponse)


@message(api_key=36, valid="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = binary()


@message(api_key=36, valid="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+", ignorable=True)


SASL_AUTHENTICATE = Api(SaslAuthenticateRequest, SaslAuthenticateResponse)
