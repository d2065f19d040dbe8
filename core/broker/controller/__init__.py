"""The controller of a cluster with ZooKeeper, where this broker is elected.

In: requests of administrators, brokers and ISRs that come and go. Out: nodes in ZooKeeper, and what brokers are to know
of them (LeaderAndIsr, UpdateMetadata, StopReplica), in the order of the changes. `ControllerElector` owns the election;
a `ActiveController` owns everything of one epoch, and ends with it. The rules are those of `core.cluster`.
"""
