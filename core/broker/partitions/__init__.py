"""Partitions on the disk: the logs, and how they are opened, flushed, cleaned and deleted.

In: reads, appends and deletions by handlers, the coordinators' logs and followers. Out: records, offsets, and calls to
waiting requests when a partition changes. `ReplicaManager` owns the partitions, on the broker's thread; flushes, loads
and cleanings run on threads of `Runtime` and report back to it.
"""
