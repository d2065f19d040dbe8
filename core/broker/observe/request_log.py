"""The request log: every request with its answer as JSON, as Kafka's kafka.request.logger writes it at DEBUG.

Only the size of records is logged, and no secrets: `[hidden]` replaces values of settings that are passwords or
unknown, and credentials. The logger is `plog.request`; its level may be set while the broker runs.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import Any

from core.broker.config.config_sources import is_secret_config
from core.broker.requests.request_context import RequestContext
from core.common.config_def import HIDDEN, ConfigResourceType
from core.protocol.message import Api
from core.protocol.message_json import message_to_json

_log = logging.getLogger("plog.request")

_SECRET_FIELDS = {"authBytes", "hmac", "salt", "saltedPassword", "storedKey", "serverKey"}
"""The fields of SaslAuthenticate, and of the requests for SCRAM users and delegation tokens, that are secret."""

is_logging_requests = partial(_log.isEnabledFor, logging.DEBUG)
"""Returns whether the log is on."""


def log_request(
    api: Api[Any, Any], correlation_id: int, context: RequestContext, request: Any, response: Any, time_ms: float
) -> None:
    """Logs a request: `request` and `response` are messages of the API; `response` may be None."""
    version = context.api_version
    completed = {
        "requestHeader": {
            "requestApiKey": api.key,
            "requestApiVersion": version,
            "correlationId": correlation_id,
            "clientId": context.client_id,
            "requestApiKeyName": api.name,
        },
        "request": _without_secrets(message_to_json(request, version)),
        "response": None if response is None else _without_secrets(message_to_json(response, version)),
        "connection": f"{context.session.local_host}-{context.session.client_host}",
        "totalTimeMs": round(time_ms, 3),
    }
    fields = {"message": "Completed request", **completed}
    _log.debug("Completed request:%s", json.dumps(completed), extra={"fields": fields})


def _without_secrets(value: Any, resource_type: int = ConfigResourceType.TOPIC) -> Any:
    """Hides the secrets in `value`, a message as JSON or a part of one, in place. Settings belong to the resource that
    names its type around them; otherwise to a topic, as in CreateTopics.
    """
    if isinstance(value, list):
        for part in value:
            _without_secrets(part, resource_type)
    elif isinstance(value, dict):
        resource_type = value.get("resourceType", resource_type)
        for name in _SECRET_FIELDS & value.keys():
            value[name] = HIDDEN
        for config in value.get("configs") or ():
            if isinstance(config, dict) and is_secret_config(resource_type, config.get("name", "")):
                for part in (config, *(config.get("synonyms") or ())):
                    if part.get("value") is not None:
                        part["value"] = HIDDEN
        for part in value.values():
            _without_secrets(part, resource_type)
    return value
