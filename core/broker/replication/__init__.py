"""A broker as a member of a cluster with ZooKeeper: follows leaders, answers controllers, connects to other brokers.

In: LeaderAndIsr, UpdateMetadata and StopReplica of the controller; records of leaders; changes of ZooKeeper's nodes.
Out: roles of partitions, appends of followers, requests of AlterPartition and Fetch. `Membership` owns the controller's
decisions, on the broker's thread; a `ReplicaFetcher` is a task of the loop for each leading broker.
"""
