"""The largest numbers of Java's types, which Kafka's settings use for "no limit"."""

from __future__ import annotations

INT_MAX = 0x7FFFFFFF
LONG_MAX = 0x7FFFFFFFFFFFFFFF
