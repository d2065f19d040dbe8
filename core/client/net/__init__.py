"""Connections to brokers: TCP, TLS, SASL, and the leaders of partitions.

In: addresses and settings of a client. Out: answers, in the order of the requests, from the broker that has them.
`KafkaClient` owns the connections; each belongs to one thread at a time. Waits are bounded, and the user is told of a
long one.
"""
