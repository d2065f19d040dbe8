"""A cluster and its topics as people look at them, reported by brokers or by the files of a directory.

In: answers of brokers (`core.client`), or a data directory. Out: values for tables, the faults of the cluster
(`cluster_health`), and levels of features as people name them. Nothing here changes anything.
"""
