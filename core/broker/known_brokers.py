"""What clients learn of brokers: where each is reached from the listener that a request came to."""

from __future__ import annotations

from core.broker.request_context import RequestContext
from core.broker.services import Services
from core.common.endpoint import Endpoint


def own_endpoint(services: Services, context: RequestContext) -> Endpoint:
    """Gives where the client reaches this broker."""
    listener = context.listener or services.config.main_listener
    return services.node.advertised_endpoint(services.config.find_advertised(listener), context.local_host, listener)
