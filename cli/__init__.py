"""The `plog` command."""
