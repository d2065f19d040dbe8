"""The commands of `plog cluster` that move things, and compare replicas; cli/commands/cluster.py puts them together."""
