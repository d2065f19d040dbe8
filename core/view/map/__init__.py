"""A map of a partition's log to scale: what lies where, from its first byte to its last.

In: headers of batches, as many as the screen has room for. Out: strips of cells; what only all of the log tells comes
later.
"""
