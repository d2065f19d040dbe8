"""What `plog inspect` looks at: a data directory, or a server; and places in it as people type them.

In: what stands on the command line. Out: an `InspectTarget`, of which the other rooms ask logs, brokers and figures.
"""
