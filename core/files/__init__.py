"""The files of a log directory: their names, their contents, and the settings that shape them.

In: bytes and paths. Out: batches, offsets, epochs and lines. Nothing here decides what a log is. A segment's `.log` is
`FileRecords` (the layouts of its indexes are in `core.index`), the text files are `checkpoint_file` and those built on
it. The caller that opens a file owns it; `directory_lock` says who may write.
"""
