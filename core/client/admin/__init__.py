"""The requests of the command line about topics, configurations and groups.

In: names and settings. Out: descriptions, and changes that a broker or the controller confirmed. Each class works on a
`KafkaClient` of its caller, and keeps no state.
"""
