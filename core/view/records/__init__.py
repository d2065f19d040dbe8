"""Records of a log as rows on a screen: keys and values as a person reads them.

In: a `PartitionReader`, or a consumer of a server. Out: rows, in both directions from any place.
"""
