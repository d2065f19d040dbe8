"""Checks files, partitions and data directories against their formats and against each other: `plog verify`.

In: paths. Out: findings (docs/findings.md has their codes), from the first byte to the last. Nothing is written.
"""
