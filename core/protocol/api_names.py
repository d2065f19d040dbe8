"""The names of Kafka's APIs by their keys, those too that plog does not speak: brokers list theirs by keys.

Source: the message definitions of Apache Kafka 3.9 and 4.4. 74 was ListClientMetricsResources up to Kafka 4.0.
"""

from __future__ import annotations

from pkgutil import get_data

API_NAMES = dict(enumerate((get_data(__name__, "api_names.txt") or b"").decode().split()))
