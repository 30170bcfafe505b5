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


SENTENCES = {
    Code.REFUSED_EPSILON: "the training's ε is above what the site allows for one release",
    Code.REFUSED_TOTAL: "the training does not fit into the site's total ε",
    Code.REFUSED_PERIOD: "the site does not offer the training's days",
    Code.REFUSED_SETTINGS: "a setting or the model is larger than the site allows",
    Code.REFUSED_SEEDED: "the site takes no part in tests, whose predictable noise protects nobody",
    Code.REFUSED_CHANGE: "the training's name is in the site's book with other noise or content",
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
    Code.SIZE: "a message larger than an answer to the training can be",
}
