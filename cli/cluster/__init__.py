"""The commands of `plog cluster` that move replicas or compare them; cli/commands/cluster.py puts them together."""
