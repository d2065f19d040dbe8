"""The broker's metrics for Prometheus, under the names that Kafka's MBeans get from the JMX exporter's usual rules.

`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t` is `kafka_server_brokertopicmetrics_bytesin_total
{topic="t"}`: dashboards made for Kafka work. docs/metrics.md lists all of them. Counters start again
with the process; a topic's counters go with the topic.

The metrics of replicas show their number, the ISRs, and the bytes from leaders to followers. A broker that
is not the controller has the controller's metrics too, as in Kafka, and each is 0; a lone broker counts as its own
controller.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from core.broker.broker_server import BrokerServer
from core.broker.controller.active_controller import ActiveController
from core.broker.observe.request_metrics import TIME_BUCKETS_MS, RequestMetrics
from core.broker.requests.authorizer import Authorizer
from core.broker.requests.services import Services
from core.broker.serving.socket_server import SocketServer
from core.cluster.controller.controller_context import ControllerStats
from core.cluster.controller.controller_metrics import ControllerMetrics, count_cluster
from core.common.clock import Clock
from core.common.endpoint import Endpoint, address_error
from core.common.errors import AccessError
from core.common.task import Task, Yield
from core.compaction.log_cleaner import LogCleaner
from core.coordinator.consumer_group import ConsumerGroup
from core.zookeeper.zookeeper_session import SessionState

Samples = Iterable[tuple[tuple[str, ...], float]]
"""(values of the labels, number) of each sample."""


gauge, counter = GaugeMetricFamily, CounterMetricFamily


def gauges(name: str, doc: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    return _filled(GaugeMetricFamily(name, doc, labels=labels), samples)


def counters(name: str, doc: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    return _filled(CounterMetricFamily(name, doc, labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for values, number in samples:
        family.add_metric(values, number)
    return family


_SCRAPE_SECONDS = 10


def broker_metrics(node: BrokerServer) -> Task[list[Metric]]:
    """Counts the broker's state and traffic, in its own task. A step makes one family, and looks at each partition at
    most once.
    """
    found = []
    for metric in _own_metrics(node):
        found.append(metric)
        yield Yield.GIVE_WAY
    return found + (yield from controller_metrics(node.services))


def _own_metrics(node: BrokerServer) -> Iterator[Metric]:
    services = node.services
    yield from _topic_metrics(services)
    yield from _partition_metrics(services)
    yield from replication_metrics(services)
    yield from _purgatory_metrics(services)
    yield from _cleaner_metrics(node.cleaning.cleaner, services.runtime.clock)
    yield from _group_metrics(services)
    yield from _transaction_metrics(services)
    yield from _session_metrics(services)
    yield from _zookeeper_metrics(services)
    if node.authorizer is not None:
        yield from _authorizer_metrics(node.authorizer)
    if node.dispatcher.metrics is not None:
        yield from _request_metrics(node.dispatcher.metrics)


def connection_metrics(server: SocketServer) -> Iterator[Metric]:
    sockets = "kafka_server_socket_server_metrics_connection"
    yield gauge(f"{sockets}_count", "Connections that are open.", server.open_connections)
    yield counter(f"{sockets}_creation", "Connections that were accepted.", server.accepted_connections)
    certificates = [(name, one.certificate) for name, one in server.served.items() if one.certificate is not None]
    prefix = "plog_listener_certificate"
    yield gauges(
        f"{prefix}_expiry_timestamp_seconds",
        "When the certificate of a listener with TLS expires, in seconds since 1970.",
        ("listener",),
        [((name,), one.own.end.timestamp()) for name, one in certificates],
    )
    yield gauges(
        f"{prefix}_chain_expiry_timestamp_seconds",
        "When the first of it and its CAs' certificates expires, as far as the listener shows these.",
        ("listener",),
        [((name,), one.first_end.timestamp()) for name, one in certificates],
    )
    yield from _authentication_metrics(server)


def _authentication_metrics(server: SocketServer) -> Iterator[Metric]:
    yield gauges(
        "plog_connections",
        "Connections that are open, by listener and its security protocol.",
        ("listener", "protocol"),
        [((name, one.door.security.protocol), one.open_connections) for name, one in server.served.items()],
    )
    secured = {name: one for name, one in server.served.items() if one.door.security.protocol != "PLAINTEXT"}
    yield counters(
        "plog_tls_failed_handshakes",
        "Handshakes of TLS that failed: no TLS, a version, a certificate.",
        ("listener",),
        [((name,), one.door.failed_handshakes) for name, one in secured.items() if one.door.security.tls is not None],
    )
    successes, failures, again, failures_again, expired = [], [], [], [], []
    for name, one in secured.items():
        door, logins = one.door, one.logins
        successes.append(((name,), door.handshakes if logins is None else logins.successes))
        failures.append(((name,), door.failed_handshakes + (0 if logins is None else logins.failures)))
        if logins is not None:
            again.append(((name,), logins.successes_again))
            failures_again.append(((name,), logins.failures_again))
            expired.append(((name,), logins.expired))
    prefix = "kafka_server_socket_server_metrics"
    for kind, doc, samples in (
        ("successful_authentication", "Clients that authenticated, by TLS alone or by SASL.", successes),
        ("failed_authentication", "Clients that failed to.", failures),
        ("successful_reauthentication", "Clients that authenticated again on their connection.", again),
        ("failed_reauthentication", "Clients that failed to.", failures_again),
        ("expired_connections_killed", "Connections whose session was over.", expired),
    ):
        yield counters(f"{prefix}_{kind}", doc, ("listener",), samples)
    strangers = server.unauthenticated
    yield gauge("plog_unauthenticated_connections", "Connections whose clients are not known yet.", strangers.count)
    yield counters(
        "plog_unauthenticated_connections_closed",
        "Those that were closed: after 10 s, or because there were too many.",
        ("reason",),
        [(("overdue",), strangers.overdue), (("crowded out",), strangers.crowded_out)],
    )


def _topic_metrics(services: Services) -> Iterator[Metric]:
    prefix = "kafka_server_brokertopicmetrics"
    messages_in: Counter[str] = Counter()
    bytes_in: Counter[str] = Counter()
    bytes_out: Counter[str] = Counter()
    for (topic, _), partition in services.replicas.partitions.items():
        messages_in[topic] += partition.messages_in
        bytes_in[topic] += partition.bytes_in
        bytes_out[topic] += partition.bytes_out
    for name, doc, counts in (
        ("messagesin", "Records that were appended.", messages_in),
        ("bytesin", "Bytes of record batches that were appended.", bytes_in),
        ("bytesout", "Bytes of record batches that were sent.", bytes_out),
    ):
        yield counters(f"{prefix}_{name}", doc, ("topic",), [((topic,), count) for topic, count in counts.items()])


def _partition_metrics(services: Services) -> Iterator[Metric]:
    labels = ("topic", "partition")
    logs = [((tp.topic, str(tp.partition)), partition.log) for tp, partition in services.replicas.partitions.items()]
    for name, doc, samples in (
        ("size", "Bytes of the log's segments.", [(values, log.size_bytes) for values, log in logs]),
        ("numlogsegments", "Segments of the log.", [(values, len(log.segments)) for values, log in logs]),
        ("logstartoffset", "The log's first offset.", [(values, log.log_start_offset) for values, log in logs]),
        ("logendoffset", "The offset of the next record.", [(values, log.log_end_offset) for values, log in logs]),
    ):
        yield gauges(f"kafka_log_log_{name}", doc, labels, samples)
    lags = [(values, log.log_end_offset - log.last_stable_offset) for values, log in logs]
    yield gauges(
        "kafka_cluster_partition_laststableoffsetlag", "Records that read_committed readers wait for.", labels, lags
    )


def _purgatory_metrics(services: Services) -> Iterator[Metric]:
    for_records, for_flush = services.replicas.waiting_counts()
    yield gauges(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests whose answers wait: for records, or for the disk.",
        ("delayedoperation",),
        [(("Fetch",), for_records), (("Produce",), for_flush)],
    )


def _cleaner_metrics(cleaner: LogCleaner, clock: Clock) -> Iterator[Metric]:
    prefix = "kafka_log_logcleanermanager"
    uncleanable = len(cleaner.uncleanable)
    yield gauge(f"{prefix}_uncleanable_partitions_count", "Partitions that can't be cleaned.", uncleanable)
    yield gauge(f"{prefix}_uncleanable_bytes", "Bytes of the logs that can't be cleaned.", cleaner.uncleanable_bytes)
    dirty = round(100 * cleaner.max_dirty_ratio)
    yield gauge(f"{prefix}_max_dirty_percent", "The largest percentage of uncleaned bytes in a compacted log.", dirty)
    idle_ms = clock.monotonic_ms() - cleaner.last_run_ms
    yield gauge(f"{prefix}_time_since_last_run_ms", "Time since the cleaner last looked at the logs, ms.", idle_ms)


def _group_metrics(services: Services) -> Iterator[Metric]:
    states = Counter(
        ("consumer" if isinstance(group, ConsumerGroup) else "classic", group.state.lower())
        for group in services.groups.groups.values()
    )
    yield gauges(
        "kafka_server_group_coordinator_metrics_group_count",
        "Groups by protocol and state.",
        ("protocol", "state"),
        states.items(),
    )
    yield gauge(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        "Offsets that groups committed.",
        services.groups.offset_count,
    )


def _transaction_metrics(services: Services) -> Iterator[Metric]:
    producers = sum(len(partition.log.producers.producers) for partition in services.replicas.partitions.values())
    yield gauge("kafka_server_replicamanager_produceridcount", "Producers that partitions remember.", producers)
    states = Counter((known.state.text,) for known in services.transactions.all())
    yield gauges(
        "plog_transaction_coordinator_transactionalids", "Transactional ids by state.", ("state",), states.items()
    )


def _session_metrics(services: Services) -> Iterator[Metric]:
    sessions = services.fetch_sessions
    prefix = "kafka_server_fetchsessioncache"
    yield gauge(f"{prefix}_numincrementalfetchsessions", "Fetch sessions that the broker keeps.", len(sessions))
    yield gauge(
        f"{prefix}_numincrementalfetchpartitionscached", "Partitions in fetch sessions.", sessions.cached_partitions
    )
    yield counter(
        f"{prefix}_incrementalfetchsessionevictions",
        "Fetch sessions that were evicted to make room for others.",
        sessions.evictions,
    )


def _zookeeper_metrics(services: Services) -> Iterator[Metric]:
    """Yields the metrics of the ZooKeeper session, under Kafka's names; none for a broker that is in no cluster."""
    if services.membership is None:
        return
    state, silence_ms, counts = services.membership.control.zookeeper
    prefix = "kafka_server_sessionexpirelistener"
    yield gauges(
        f"{prefix}_sessionstate",
        "1 for the present state of the session with ZooKeeper, 0 for the others.",
        ("state",),
        [((one.name,), int(one is state)) for one in SessionState],
    )
    yield gauge("plog_zookeeper_silence_ms", "How long ZooKeeper has been away, ms; 0 while it is there.", silence_ms)
    for name, doc, counted in (
        ("zookeepersyncconnects", "Connections to ZooKeeper.", SessionState.CONNECTED),
        ("zookeeperdisconnects", "Connections to ZooKeeper that were lost.", SessionState.SUSPENDED),
        ("zookeeperexpires", "Sessions with ZooKeeper that have expired.", SessionState.EXPIRED),
        ("zookeeperauthfailures", "Logins that ZooKeeper refused.", SessionState.FAILED),
    ):
        yield counter(f"{prefix}_{name}", doc, counts.get(counted, 0))


def _authorizer_metrics(authorizer: Authorizer) -> Iterator[Metric]:
    yield counters(
        "plog_authorizations",
        "Questions whether a client has a right on a resource, by the answer.",
        ("result",),
        [(("allowed",), authorizer.allowed), (("denied",), authorizer.denied)],
    )
    yield gauge("plog_acls", "ACLs that the authorizer obeys.", len(authorizer.rules))


def _request_metrics(metrics: RequestMetrics) -> Iterator[Metric]:
    prefix = "kafka_network_requestmetrics"
    yield counters(
        f"{prefix}_requests",
        "Requests that were answered.",
        ("request", "version"),
        [((api, str(version)), count) for (api, version), count in metrics.requests.items()],
    )
    yield counters(
        f"{prefix}_errors",
        "Error codes in answers to requests, NONE too.",
        ("request", "error"),
        [((api, code.name), count) for (api, code), count in metrics.errors.items()],
    )
    times = HistogramMetricFamily(
        f"{prefix}_totaltimems",
        "Milliseconds from a request being read to its answer being made, with what it waited for.",
        labels=("request",),
    )
    ends = [*map(str, TIME_BUCKETS_MS), "+Inf"]
    for api, histogram in metrics.times.items():
        buckets = list(zip(ends, accumulate(histogram.counts), strict=True))
        times.add_metric((api,), buckets, histogram.sum_ms)
    yield times


class _BrokerCollector(Collector):
    """Calls into the broker's task, from the thread of the HTTP server."""

    def __init__(self, node: BrokerServer, server: SocketServer, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._server = server
        self._loop = loop

    def collect(self) -> Iterable[Metric]:
        return asyncio.run_coroutine_threadsafe(self._read(), self._loop).result(_SCRAPE_SECONDS)

    async def _read(self) -> list[Metric]:
        steps = broker_metrics(self._node)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return [*end.value, *connection_metrics(self._server)]
            await asyncio.sleep(0)


class MetricsServer:
    """Answers GET /metrics from a thread of its own; created and closed by the broker's task."""

    def __init__(self, node: BrokerServer, server: SocketServer, listen: Endpoint) -> None:
        """Raises AccessError if the address can't be bound. `endpoint` is the address that it listens on."""
        node.dispatcher.metrics = RequestMetrics()
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        registry.register(_BrokerCollector(node, server, asyncio.get_running_loop()))
        try:
            self._server, _ = start_http_server(listen.port, listen.host or "0.0.0.0", registry)  # noqa: S104
        except (OSError, ValueError) as failure:
            error = address_error(failure) if isinstance(failure, ValueError) else failure
            raise AccessError(
                f"could not listen on {listen} for metrics: {(error.strerror or str(error)).lower()}", where=str(listen)
            ) from failure
        self.endpoint = Endpoint(listen.host, self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def replication_metrics(services: Services) -> Iterator[Metric]:
    yield from _replica_metrics(services)
    yield from _in_sync_metrics(services)
    yield from _traffic_metrics(services)


def _replica_metrics(services: Services) -> Iterator[Metric]:
    unloaded = len(services.log_manager.unloaded)
    served, offline = len(services.replicas.partitions) + unloaded, len(services.log_manager.offline)
    prefix = "kafka_server_replicamanager"
    yield gauge(f"{prefix}_partitioncount", "Partitions that this broker has a replica of.", served + offline)
    led = sum(partition.is_leading for partition in services.replicas.partitions.values())
    led += sum(services.replicas.leads(name) for name in services.log_manager.unloaded)
    yield gauge(f"{prefix}_leadercount", "Partitions that this broker leads.", led)
    yield gauge("plog_unloaded_partitions", "Partitions that have not been read yet since the start.", unloaded)
    yield gauge(f"{prefix}_offlinereplicacount", "Partitions that are offline because the disk failed.", offline)


def _in_sync_metrics(services: Services) -> Iterator[Metric]:
    prefix = "kafka_server_replicamanager"
    partitions = services.replicas.partitions.values()
    out_of_sync = "Partitions led here that have replicas out of sync, not counting replicas that are being added."
    refusing = "Partitions led here that refuse acks=all."
    one_less = "Partitions led here that would refuse acks=all with one replica less in sync."
    moving = "Partitions led here whose replicas are being moved."
    for name, doc, flags in (
        ("underreplicatedpartitions", out_of_sync, (one.is_under_replicated for one in partitions)),
        ("underminisrpartitioncount", refusing, (one.is_under_min_isr for one in partitions)),
        ("atminisrpartitioncount", one_less, (one.is_at_min_isr for one in partitions)),
        ("reassigningpartitions", moving, (one.is_reassigning for one in partitions)),
    ):
        yield gauge(f"{prefix}_{name}", doc, sum(flags))
    counts = services.replicas.counts
    yield counter(f"{prefix}_isrshrinks", "Times that replicas left an ISR.", counts.isr_shrinks)
    yield counter(f"{prefix}_isrexpands", "Times that a replica joined an ISR.", counts.isr_expands)
    yield counter(f"{prefix}_failedisrupdates", "Times that the controller refused an ISR.", counts.failed_isr_updates)


def _traffic_metrics(services: Services) -> Iterator[Metric]:
    prefix, counts = "kafka_server_brokertopicmetrics", services.replicas.counts
    for name, doc, value in (
        ("replicationbytesin", "Bytes of record batches that came from leaders.", counts.bytes_in),
        ("replicationbytesout", "Bytes of record batches that went to followers.", counts.bytes_out),
        ("reassignmentbytesin", "Bytes that came for replicas being added here.", counts.reassignment_bytes_in),
        ("reassignmentbytesout", "Bytes that went to replicas being added.", counts.reassignment_bytes_out),
    ):
        yield counter(f"{prefix}_{name}", doc, value)
    for role, quota in services.quotas._asdict().items():
        doc = f"Bytes per second of throttled partitions, lately, as a {role}; counted while a rate is set."
        yield gauge(f"kafka_server_{role}replication_byte_rate", doc, quota.byte_rate)
    lag = 0 if services.membership is None else services.membership.max_lag
    yield gauges(
        "kafka_server_replicafetchermanager_maxlag",
        "The most committed records that a replica of this broker lacks.",
        ("clientid",),
        [(("Replica",), lag)],
    )


_PREFIX = "kafka_controller"


def controller_metrics(services: Services) -> Task[list[Metric]]:
    """Makes them in steps, because all partitions of the cluster are counted."""
    membership = services.membership
    if membership is None:
        return list(_metrics(_counts_alone(services), None, is_active=True))
    term = membership.control.term
    counts = (
        ControllerMetrics() if term is None else (yield from count_cluster(term.context, term.controller.deletions))
    )
    return list(_metrics(counts, term, is_active=term is not None))


def _counts_alone(services: Services) -> ControllerMetrics:
    topics = services.image.topics.values()
    return ControllerMetrics(
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics),
        offline_partitions=len(services.log_manager.offline),
    )


def _metrics(counts: ControllerMetrics, term: ActiveController | None, *, is_active: bool) -> Iterator[Metric]:
    prefix = f"{_PREFIX}_kafkacontroller"
    yield gauge(f"{prefix}_activecontrollercount", "1 if this broker is the controller, else 0.", int(is_active))
    for name, doc, value in (
        ("globaltopiccount", "Topics of the cluster.", counts.topics),
        ("globalpartitioncount", "Partitions of the cluster.", counts.partitions),
        ("offlinepartitionscount", "Partitions of the cluster without a leader.", counts.offline_partitions),
        ("preferredreplicaimbalancecount", "Partitions not led by their first replica.", counts.not_led_by_preferred),
        ("topicstodeletecount", "Topics that are being deleted.", counts.topics_to_delete),
        ("replicastodeletecount", "Replicas still there of topics being deleted.", counts.replicas_to_delete),
    ):
        yield gauge(f"{prefix}_{name}", doc, value)
    stats = ControllerStats() if term is None else term.context.stats
    yield counter(
        f"{_PREFIX}_controllerstats_uncleanleaderelections", "Leaders that were not in sync.", stats.unclean_elections
    )
    timer = f"{_PREFIX}_controllerstats_leaderelectionrateandtimems"
    elections = Metric(timer, "Times that brokers came or went.", "summary")
    elections.add_sample(f"{timer}_count", {}, stats.broker_changes)  # the one part of Kafka's timer that plog has
    yield elections
    events, requests = (0, 0) if term is None else (term.waiting_events, term.unsent)
    yield gauge(f"{_PREFIX}_controllereventmanager_eventqueuesize", "Events that the controller must process.", events)
    yield gauge(
        f"{_PREFIX}_controllerchannelmanager_totalqueuesize", "Controller's requests without an answer.", requests
    )
