"""Late reports, dates of onset and the reproduction number."""
