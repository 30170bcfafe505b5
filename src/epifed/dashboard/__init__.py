"""The coordinator's page and its metrics: a read-only web server on the state of a federation."""
