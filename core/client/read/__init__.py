"""Reads topics: of a cluster, of a group's member, or of the files of data directories.

In: partitions with offsets, or a group. Out: whole batches, checked, in the order of their offsets; and messages about
records that are left out. `RecordSource` covers clusters and directories; `GroupConsumer` commits for a group.
"""
