"""Figures of topics: sizes, offsets, groups that lag; of files, or of a cluster's brokers.

In: an `InspectTarget`. Out: rows of the first screen, and the report of `plog stats --html`.
"""
