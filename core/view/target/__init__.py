"""The target of `plog inspect`: a data directory, or a server; and places in it as users type them.

In: command line arguments. Out: an `InspectTarget`, which the other screens ask for logs, brokers and figures.
"""
