"""Keys and values by a schema: a registry's Avro, Protobuf and JSON Schema, or one of Kafka's serdes.

In: bytes of records, or text of people. Out: the other of the two; what does not decode is named, with its place.
"""
