"""Prometheus's families of metrics, each made in one line."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Samples = Iterable[tuple[tuple[str, ...], float]]
"""The values of the labels, and the number."""


def gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(name, doc, value)


def gauges(name: str, doc: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, doc, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def counter(name: str, doc: str, value: float) -> Metric:
    return counters(name, doc, (), [((), value)])


def counters(name: str, doc: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = CounterMetricFamily(name, doc, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def timer_count(name: str, doc: str, value: float) -> Metric:
    """Makes that part of a timer of Kafka's which says how often something was timed: NAME_count."""
    family = Metric(name, doc, "summary")
    family.add_sample(f"{name}_count", {}, value)
    return family
