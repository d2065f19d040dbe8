"""The controller of a cluster with ZooKeeper, if this broker is elected.

In: requests of administrators, brokers and ISRs that come and go. Out: nodes in ZooKeeper, and requests that announce
them to brokers (LeaderAndIsr, UpdateMetadata, StopReplica), in the order of the changes. `ControllerElector` owns the
election; an `ActiveController` owns all state of one epoch, and ends with it. The rules are those of `core.cluster`.
"""
