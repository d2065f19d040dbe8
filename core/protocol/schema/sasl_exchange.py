"""How a client authenticates itself by SASL.

SaslHandshake (API 17): which mechanism of SASL the client will speak (KIP-43, KIP-152). After version 0
the mechanism's messages go over the wire bare; after version 1 they are in SaslAuthenticate.
SaslAuthenticate (API 36): a message of the mechanism's, and the server's answer to it (KIP-152, KIP-368).
"""

from __future__ import annotations

from core.protocol.message import Api, Message, array, binary, int16, int64, string


class SaslHandshakeRequest(Message, api_key=17, valid="0-1", flexible="none"):
    mechanism: str = string()


class SaslHandshakeResponse(Message, api_key=17, valid="0-1", flexible="none"):
    error_code: int = int16()
    mechanisms: list[str] = array("string")


SASL_HANDSHAKE = Api(SaslHandshakeRequest, SaslHandshakeResponse)


class SaslAuthenticateRequest(Message, api_key=36, valid="0-2", flexible="2+"):
    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Message, api_key=36, valid="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+", ignorable=True)


SASL_AUTHENTICATE = Api(SaslAuthenticateRequest, SaslAuthenticateResponse)
