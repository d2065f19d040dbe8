"""plog's answers beside Apache Kafka's: the same requests to both, and what each answers, field by field.

    scripts/compare-with-kafka             starts both and compares
    scripts/compare-with-kafka --record    writes Kafka's answers to tests/golden/answers, for machines without Java

A scenario asks an `AskedBroker` (`asked_broker.py`) and every answer becomes a step. The requests are encoded and the
answers decoded by Kafka's own message definitions (`message_codec.py`), and what differs from run to run (ids, times,
ports) is replaced by symbols (`symbols.py`). `comparison.py` tells where two brokers part, and `known_differences.py`
says which of these places are meant, each with the reason that the documents give. What asks and compares imports
nothing of `core`: a mistake of plog's own codec can't hide itself.
"""
