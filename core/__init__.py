"""plog's engine: Kafka's log, its formats, its protocol and its broker (see core/README.md)."""

VERSION = "0.2.0"
