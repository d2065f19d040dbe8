"""The bytes of a file with the field of each, and the purpose of the field.

In: a file, as far as the user looks. Out: fields, groups of them, and the next place of a text or of bytes.
"""
