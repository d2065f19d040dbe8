"""Which brokers hold which replicas: of new topics, and after a move.

In: brokers with their racks, partitions with their sizes. Out: lists of broker ids, the leader first. Pure functions:
nobody is asked, nothing is kept.
"""
