"""Assigns replicas to brokers: those of new topics, and in moves.

In: brokers with their racks, partitions with their sizes. Out: lists of broker ids, the leader first. Pure functions
without state.
"""
