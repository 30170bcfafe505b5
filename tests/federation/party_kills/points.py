"""The points of a round with aggregators at which a party is killed: before or after a method."""

SERVER = ("epifed.federation.secure_training", "SecureTraining")
ANSWER = ("epifed.federation.answers", "_Answer")
GIVING = ("epifed.federation.answers", "AnswerCache")
BOOK = ("epifed.federation.terms", "SiteLedger")

POINTS = {
    "server": [
        (*SERVER, "_collect"),
        (*SERVER, "_store"),
        (*SERVER, "_pay"),
        (*SERVER, "_ask"),
        (*SERVER, "_wait"),
        (*SERVER, "_save"),
    ],
    "party": [(*ANSWER, "write"), (*BOOK, "enter"), (*GIVING, "give")],
}
"""Of the server, and of a site or an aggregator: module, class and method."""
WHEN = ("before", "after")
