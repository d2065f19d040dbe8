"""Analyses whole logs: their contents, how two differ, and what a cleaner would do: stats, diff, trace, compact.

In: folders of partitions, or copies of a server's. Out: figures and rows; `OfflineCompaction` writes a log again.
"""
