"""Keys and values by a schema: a registry's Avro, Protobuf and JSON Schema, or one of Kafka's serdes.

In: bytes of records, or text of users. Out: the other of the two; errors name the place that does not decode.
"""
