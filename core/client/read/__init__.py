"""Reads topics: of a cluster, of a group's member, or of the files of data directories.

In: partitions with offsets, or a group. Out: whole batches, checked, in the order of their offsets; and messages about
records that are left out. A `RecordSource` is the same for a cluster and a directory; `GroupConsumer` commits for a
group.
"""
