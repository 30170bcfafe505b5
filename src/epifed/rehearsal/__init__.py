"""A year in an hour: a whole federation, week after week, in real processes with a fast clock."""
