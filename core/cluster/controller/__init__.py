"""The decisions of the controller of a cluster with ZooKeeper: elections, ISRs, reassignments, deletions.

In: events, as calls. Out: writes to ZooKeeper (`controller_writes`), then requests to brokers (`controller_requests`).
`ClusterController` owns the context of one controller epoch. Nothing here opens a connection: `core.broker.controller`
drives it, and so does the simulator.
"""
