"""The learners that come with epifed, one file each."""
