"""What a site may say when it sends no vector, and why the server did not take one. No free text.

An exception's message can hold data: a path, a row, a number of cases. So what leaves a site is
one of these codes, and the message stays in the site's own log.
"""

from enum import StrEnum


class Code(StrEnum):
    """Why a contribution is missing from a round."""

    REFUSED_EPSILON = "refused-epsilon"
    REFUSED_TOTAL = "refused-total"
    REFUSED_PERIOD = "refused-period"
    REFUSED_SETTINGS = "refused-settings"
    REFUSED_SEEDED = "refused-seeded"
    REFUSED_CHANGE = "refused-change"
    REFUSED_TRUST = "refused-trust"
    REFUSED_REPEAT = "refused-repeat"
    REFUSED_ROSTER = "refused-roster"
    DATA = "data"
    BAD_TASK = "bad-task"
    ERROR = "error"
    ABSENT = "absent"
    NO_ANSWER = "no-answer"
    LATE = "late"
    NOT_FINITE = "not-finite"
    SHAPE = "shape"
    DTYPE = "dtype"
    NORM = "norm"
    MESSAGE = "message"
    SIZE = "size"
    FOREIGN = "foreign"
    DOUBLED = "doubled"
    SIGNATURE = "signature"
    DIGEST = "digest"
    REPORTS = "reports"
    SEALED = "sealed"
    TOTAL = "total"
    UNUSUAL = "unusual"


SENTENCES = {
    Code.REFUSED_EPSILON: "the training's ε is above what the site allows for one release",
    Code.REFUSED_TOTAL: "the training does not fit into the site's total ε",
    Code.REFUSED_PERIOD: "the site does not offer the training's days",
    Code.REFUSED_SETTINGS: "a setting or the model is larger than the site allows",
    Code.REFUSED_SEEDED: "the site takes no part in tests, whose predictable noise protects nobody",
    Code.REFUSED_CHANGE: "the training's name is in the site's book with other noise or content",
    Code.REFUSED_TRUST: "the training asks to trust others than those the party has pinned",
    Code.REFUSED_REPEAT: "the round was answered before, to another question",
    Code.REFUSED_ROSTER: "N or the aggregators are not those of the aggregator's own roster",
    Code.DATA: "the site's data cannot be read or does not cover the training's days",
    Code.BAD_TASK: "the site did not understand the task: another version of epifed",
    Code.ERROR: "an error at the site, which is in the site's own log",
    Code.ABSENT: "the site is not connected",
    Code.NO_ANSWER: "the site did not answer in time",
    Code.LATE: "an answer to a round that is over",
    Code.NOT_FINITE: "a vector with a value that is not a finite number",
    Code.SHAPE: "vectors of the wrong shape",
    Code.DTYPE: "vectors of the wrong number format",
    Code.NORM: "a vector longer than the clip norm",
    Code.MESSAGE: "a message that is not a contribution",
    Code.SIZE: "a message of another size than an answer to the training has",
    Code.FOREIGN: "a report of a site that is not in the roster, or whose key is not",
    Code.DOUBLED: "two reports of one site in a round",
    Code.SIGNATURE: "a report whose signature does not fit its site, round, noise and content",
    Code.DIGEST: "a share that is not the one that its site signed",
    Code.REPORTS: "the aggregators were not given the same reports",
    Code.SEALED: "a share that its aggregator cannot open, which spoils the round",
    Code.TOTAL: "a sum longer than all clients and the noise can be, which spoils the round",
    Code.UNUSUAL: "a release unlike those of the weeks before: somebody should look at it",
}
