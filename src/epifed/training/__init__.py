"""A training: its round, the loop in one process, and the release file."""
