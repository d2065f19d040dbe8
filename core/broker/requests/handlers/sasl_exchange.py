"""SaslHandshake and SaslAuthenticate of a client that needs no authentication, or has it already: always refused, as in
Kafka. Before that, `core/broker/serving/sasl_authenticator.py` answers them.
"""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.protocol.schema.sasl_exchange import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@serves(SASL_HANDSHAKE)
def handshake(_services: Services, _request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


@serves(SASL_AUTHENTICATE)
def authenticate(
    _services: Services, _request: SaslAuthenticateRequest, _context: RequestContext
) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message)
