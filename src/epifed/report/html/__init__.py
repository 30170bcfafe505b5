"""The report: one HTML file with everything in it, for those who decide."""

from epifed.report.html.write import write_report

__all__ = ["write_report"]
