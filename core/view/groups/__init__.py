"""Consumer groups and transactions, of a server or of the files of a data directory.

In: answers of coordinators, or the records of their topics, replayed. Out: the same rows for both.
"""
