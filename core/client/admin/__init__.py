"""What the command line asks a cluster about topics, configurations and groups.

In: names and settings. Out: descriptions, and changes that a broker or the controller confirmed. Each class works on
a `KafkaClient` of its caller, and keeps nothing.
"""
