"""The page of `epifed open`: a file in, questions to click, a forecast to take along."""
