"""Partitions on the disk: which logs there are, who opens, flushes, cleans and deletes them.

In: reads, appends and deletions of handlers, of the coordinators' logs and of followers. Out: records, offsets, and
calls of those who wait when a partition changes. `ReplicaManager` owns the partitions, on the broker's thread; flushes,
loads and cleanings run on threads of `Runtime` and report back to it.
"""
