"""Metrics of a controller, of a broker that is not in office, and of one that is alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from core.broker.controller.active_controller import ActiveController
from core.broker.observe.metrics import controller_metrics
from core.broker.requests.services import Services
from core.cluster.controller.controller_context import ControlledTopic, ControllerContext
from core.cluster.image.metadata_image import PartitionState
from core.common.task import finish
from tests.support.broker import SteeredNode, add_topic


def metrics(services: Services) -> dict[str, float]:
    return {
        sample.name.removeprefix("kafka_controller_"): sample.value
        for metric in finish(controller_metrics(services))
        for sample in metric.samples
    }


def in_cluster(term: ActiveController | None) -> Services:
    return cast(Services, SimpleNamespace(membership=SimpleNamespace(control=SimpleNamespace(term=term))))


def test_the_controller_tells_how_its_cluster_stands_and_what_it_did() -> None:
    context = ControllerContext()
    context.put_topic("t", ControlledTopic(bytes(16), 0, {0: PartitionState(2, 1, (2,), (1, 2), 3)}))
    context.put_topic("gone", ControlledTopic(bytes(15) + b"1", 0, {0: PartitionState(1, 1, (1,), (1,), 3)}))
    context.deleted.add("gone")
    context.stats.unclean_elections, context.stats.broker_changes = 4, 5
    controller = SimpleNamespace(deletions=SimpleNamespace(replicas_left=6))
    term = SimpleNamespace(context=context, controller=controller, waiting_events=7, unsent=8)
    assert metrics(in_cluster(cast(ActiveController, term))) == {
        "kafkacontroller_activecontrollercount": 1,
        "kafkacontroller_globaltopiccount": 2,
        "kafkacontroller_globalpartitioncount": 2,
        "kafkacontroller_offlinepartitionscount": 1,
        "kafkacontroller_preferredreplicaimbalancecount": 1,
        "kafkacontroller_topicstodeletecount": 1,
        "kafkacontroller_replicastodeletecount": 6,
        "controllerstats_uncleanleaderelections_total": 4,
        "controllerstats_leaderelectionrateandtimems_count": 5,
        "controllereventmanager_eventqueuesize": 7,
        "controllerchannelmanager_totalqueuesize": 8,
    }


def test_others_have_the_same_metrics_without_a_number_so_that_a_sum_counts_nothing_twice() -> None:
    found = metrics(in_cluster(None))
    assert len(found) == 11
    assert not any(found.values())


def test_a_broker_that_is_alone_counts_as_its_controller(broker: SteeredNode) -> None:
    add_topic(broker, partitions=3)
    assert {name: value for name, value in metrics(broker.services).items() if value} == {
        "kafkacontroller_activecontrollercount": 1,
        "kafkacontroller_globaltopiccount": 1,
        "kafkacontroller_globalpartitioncount": 3,
    }
