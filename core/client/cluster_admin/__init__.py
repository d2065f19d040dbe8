"""Requests of the command line about the replicas of a cluster: where they are, whether they agree, and moves.

In: partitions and brokers. Out: states of replicas, and reassignments that are watched to their end. The throttle of a
move is removed after it.
"""
