"""The bytes of a file with the field under each, and what the field is for.

In: a file, as far as somebody looks. Out: fields, groups of them, and the next place of a text or of bytes.
"""
