"""The coordinators' logs: `__consumer_offsets` and `__transaction_state`, read, written and led.

In: requests for groups and transactions, and the logs' old records. Out: records of these topics, and markers to the
partitions of transactions that end. A `CoordinatorLog` owns a topic and loads a partition when this broker becomes its
leader; the state machines are those of `core.coordinator`, without I/O. All of it runs on the broker's thread.
"""
