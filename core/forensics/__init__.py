"""Reads a log that may be damaged, whether this process, another program or a lost broker wrote it.

In: the files of a partition's folder, and other files' facts about it (`known_offsets`). Out: the batches that are its
log, in order (`log_map`), and for all else a reason: damage, missing offsets, transactions whose marker is lost.
`batch_scanner` finds batches in any bytes, `batch_order` decides which of them count, `log_scanner` hands them to
readers. The engine (`core.log`) asks after a crash, `PartitionReader` for readers from outside. Nothing is written here
but the journal of `plog recover`, and the folder that `shadow_layout` may change.
"""
