"""A year in an hour: a whole federation, week after week, on real processes and a fast clock."""
