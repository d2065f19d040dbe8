"""SaslHandshake (API 17): which mechanism of SASL the client will speak (KIP-43, KIP-152).

After version 0 the mechanism's messages go over the wire bare; after version 1 they are in SaslAuthenticate.
"""

from __future__ import annotations

from core.protocol.message import Api, array, int16, message, string


@message(api_key=17, valid="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: str = string()


@message(api_key=17, valid="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array("string")


SASL_HANDSHAKE = Api(17, "SaslHandshake", SaslHandshakeRequest, SaslHandshakeResponse)
