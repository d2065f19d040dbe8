"""Shows the contents of a file, byte by byte or record by record: `plog dump-segment`.

In: a path of any kind of file. Out: rows, Arrow, the text of Kafka's tool, or each byte with the name of its field.
"""
