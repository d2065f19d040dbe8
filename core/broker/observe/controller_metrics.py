"""Metrics of the controller. As Kafka's, a broker that is not in office has all of them, and each is 0.

A broker that is alone decides for itself: it counts as its own controller.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from core.broker.controller.controller_term import ControllerTerm
from core.broker.observe.metric_families import counter, gauge, timer_count
from core.broker.requests.services import Services
from core.cluster.controller_context import ControllerStats
from core.cluster.controller_counts import ControllerCounts, count_cluster
from core.common.steps import Steps

_PREFIX = "kafka_controller"


def controller_metrics(services: Services) -> Steps[list[Metric]]:
    """Makes them in steps: all partitions of the cluster are looked at."""
    membership = services.membership
    if membership is None:
        return list(_metrics(_counts_alone(services), None, is_active=True))
    term = membership.control.term if membership.control is not None else None
    counts = ControllerCounts() if term is None else (yield from count_cluster(term.context, term.controller.deletions))
    return list(_metrics(counts, term, is_active=term is not None))


def _counts_alone(services: Services) -> ControllerCounts:
    topics = services.image.topics.values()
    return ControllerCounts(
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics),
        offline_partitions=len(services.log_manager.offline),
    )


def _metrics(counts: ControllerCounts, term: ControllerTerm | None, *, is_active: bool) -> Iterator[Metric]:
    prefix = f"{_PREFIX}_kafkacontroller"
    yield gauge(f"{prefix}_activecontrollercount", "1 where this broker is the controller.", int(is_active))
    for name, doc, value in (
        ("globaltopiccount", "Topics of the cluster.", counts.topics),
        ("globalpartitioncount", "Its partitions.", counts.partitions),
        ("offlinepartitionscount", "Those without a leader.", counts.offline_partitions),
        ("preferredreplicaimbalancecount", "Those not led by their first replica.", counts.not_led_by_preferred),
        ("topicstodeletecount", "Topics that are being deleted.", counts.topics_to_delete),
        ("replicastodeletecount", "Replicas of them that are still there.", counts.replicas_to_delete),
    ):
        yield gauge(f"{prefix}_{name}", doc, value)
    stats = ControllerStats() if term is None else term.context.stats
    yield counter(
        f"{_PREFIX}_controllerstats_uncleanleaderelections", "Leaders that were not in sync.", stats.unclean_elections
    )
    yield timer_count(
        f"{_PREFIX}_controllerstats_leaderelectionrateandtimems",
        "Times that brokers came or went.",
        stats.broker_changes,
    )
    events, requests = (0, 0) if term is None else (term.waiting_events, term.unsent)
    yield gauge(f"{_PREFIX}_controllereventmanager_eventqueuesize", "Events that the controller must process.", events)
    yield gauge(
        f"{_PREFIX}_controllerchannelmanager_totalqueuesize", "Its requests that brokers have not answered.", requests
    )
