"""Writes records to a cluster, in transactions on request, and measures how fast.

In: columns of records. Out: each acknowledged or reported. `Producer` owns the requests under way, and its sequences.
"""
