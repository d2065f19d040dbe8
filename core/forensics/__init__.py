"""What a log holds, read without belief: sound or damaged, of this process, another program, or a lost broker.

In: the files of a partition's folder, and what other files know of it (`known_offsets`). Out: the batches that are its
log, in order (`log_map`), and for all else a reason: damage, offsets that are missing, transactions whose end is lost.
`batch_scanner` finds batches in any bytes, `batch_order` decides which of them count, `log_scanner` gives them to
readers. The engine (`core.log`) asks after a crash, `PartitionReader` for whoever reads from outside. Nothing is
written here but the journal of `plog recover`, and the folder that `shadow_layout` is given to change.
"""
