"""SaslHandshake and SaslAuthenticate of a client that needs no authentication, or has it already: always refused, as in
Kafka. Before that, `core/broker/serving/sasl_authenticator.py` answers them.
"""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import NOTHING, ServedApi
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


def handshake(_services: Services, _request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


def authenticate(
    _services: Services, _request: SaslAuthenticateRequest, _context: RequestContext
) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message)


SERVES = (ServedApi(SASL_HANDSHAKE, handshake, NOTHING), ServedApi(SASL_AUTHENTICATE, authenticate, NOTHING))
