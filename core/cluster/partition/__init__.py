"""One replica of a partition: its role, its ISR, and what a follower fetches next.

In: roles from the metadata, appends, and fetches of followers. Out: the high watermark, proposals for the ISR, and
plans of fetches. `Partition` owns the log while it leads or follows; no sockets and no clock but the one it is given.
"""
