"""The decisions of the controller of a cluster with ZooKeeper: elections, ISRs, reassignments, deletions.

In: what happened, as calls. Out: what is to be written to ZooKeeper (`controller_writes`), and what brokers are to know
of it (`controller_requests`), in that order. `ClusterController` owns the context of one epoch. Nothing here opens a
connection: `core.broker.controller` drives it, and the simulator does.
"""
