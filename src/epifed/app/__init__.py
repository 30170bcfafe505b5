"""The page of `epifed open`: read a file, ask about ambiguities, and forecast from it."""
