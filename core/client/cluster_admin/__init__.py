"""What the command line does with the replicas of a cluster: where they are, whether they agree, and moves.

In: partitions and brokers. Out: states of replicas, and reassignments that are watched to their end. What a move
throttles it frees again.
"""
