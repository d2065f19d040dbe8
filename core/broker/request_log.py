"""The request log: every request with its answer as JSON, as Kafka's kafka.request.logger writes it at DEBUG.

Records are told by their size. The logger is `plog.request`; its level may be set while the broker runs.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import Any

from core.broker.request_context import RequestContext
from core.protocol.api import Api
from core.protocol.message_json import message_to_json

_log = logging.getLogger("plog.request")

is_logging_requests = partial(_log.isEnabledFor, logging.DEBUG)
"""Whether somebody reads it."""


def log_request(
    api: Api[Any, Any], correlation_id: int, context: RequestContext, request: Any, response: Any, time_ms: float
) -> None:
    """`request` and `response`: messages of the API; the response None where none is given."""
    version = context.api_version
    completed = {
        "requestHeader": {
            "requestApiKey": api.key,
            "requestApiVersion": version,
            "correlationId": correlation_id,
            "clientId": context.client_id,
            "requestApiKeyName": api.name,
        },
        "request": message_to_json(request, version),
        "response": None if response is None else message_to_json(response, version),
        "connection": f"{context.local_host}-{context.client_host}",
        "totalTimeMs": round(time_ms, 3),
    }
    fields = {"message": "Completed request", **completed}
    _log.debug("Completed request:%s", json.dumps(completed), extra={"fields": fields})
