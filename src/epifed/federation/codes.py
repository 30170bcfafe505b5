"""What a site may say when it sends no vector, and why the server did not take one. No free text.

An exception's message can hold data: a path, a row, a number of cases. So what leaves a site is
one of these codes, and the message stays in the site's own log.
"""

from enum import StrEnum
from typing import Literal


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
    LEDGER = "ledger"
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
    VERSION = "version"


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
    Code.LEDGER: "the party's own ledger is damaged, an older copy, or new to its machine",
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
    Code.VERSION: "another version of epifed, whose messages differ; the site was not asked",
    Code.UNUSUAL: "a release unlike those of the weeks before: somebody should look at it",
}

GERMAN = {
    Code.REFUSED_EPSILON: "das ε des Trainings ist größer, als der Standort je Freigabe erlaubt",
    Code.REFUSED_TOTAL: "das Training passt nicht mehr in das gesamte ε des Standorts",
    Code.REFUSED_PERIOD: "der Standort stellt die Tage des Trainings nicht bereit",
    Code.REFUSED_SETTINGS: "eine Einstellung oder das Modell ist größer, als der Standort erlaubt",
    Code.REFUSED_SEEDED: (
        "der Standort nimmt an keinen Tests teil, deren vorhersagbares Rauschen niemanden schützt"
    ),
    Code.REFUSED_CHANGE: (
        "der Name des Trainings steht im Buch des Standorts mit anderem Rauschen oder Inhalt"
    ),
    Code.REFUSED_TRUST: "das Training verlangt Vertrauen in andere als die festgelegten Stellen",
    Code.REFUSED_REPEAT: "die Runde wurde schon beantwortet, auf eine andere Frage",
    Code.REFUSED_ROSTER: "N oder die Aggregatoren stehen anders in der Liste des Aggregators",
    Code.DATA: "die Daten des Standorts sind nicht lesbar oder decken die Tage nicht ab",
    Code.LEDGER: "das eigene Buch ist beschädigt, eine ältere Kopie oder neu auf dem Rechner",
    Code.BAD_TASK: "der Standort hat die Aufgabe nicht verstanden: eine andere Version von epifed",
    Code.ERROR: "ein Fehler am Standort, der in seinem eigenen Protokoll steht",
    Code.ABSENT: "der Standort ist nicht verbunden",
    Code.NO_ANSWER: "der Standort hat nicht rechtzeitig geantwortet",
    Code.LATE: "eine Antwort auf eine Runde, die schon vorbei ist",
    Code.NOT_FINITE: "ein Vektor mit einem Wert, der keine endliche Zahl ist",
    Code.SHAPE: "Vektoren der falschen Form",
    Code.DTYPE: "Vektoren im falschen Zahlenformat",
    Code.NORM: "ein Vektor, der länger als die Schranke ist",
    Code.MESSAGE: "eine Nachricht, die kein Beitrag ist",
    Code.SIZE: "eine Nachricht anderer Größe, als eine Antwort auf das Training hat",
    Code.FOREIGN: "ein Bericht eines Standorts, der oder dessen Schlüssel nicht in der Liste steht",
    Code.DOUBLED: "zwei Berichte eines Standorts in einer Runde",
    Code.SIGNATURE: (
        "ein Bericht, dessen Unterschrift nicht zu Standort, Runde, Rauschen und Inhalt passt"
    ),
    Code.DIGEST: "ein Anteil, der nicht der ist, den sein Standort unterschrieben hat",
    Code.REPORTS: "die Aggregatoren haben nicht dieselben Berichte bekommen",
    Code.SEALED: "ein Anteil, den sein Aggregator nicht öffnen kann, was die Runde verdirbt",
    Code.TOTAL: (
        "eine Summe, die länger ist, als alle Klienten und das Rauschen sein können, was die Runde "
        "verdirbt"
    ),
    Code.VERSION: "eine andere Version von epifed, deren Nachrichten anders sind; nicht gefragt",
    Code.UNUSUAL: "eine Freigabe, die nicht ist wie die der Wochen davor: jemand sollte hinsehen",
}
"""The same in German, for the pages that offices read."""

Standing = Literal["absent", "late", "refused", "faulty"]
"""What a code says of a site: away, too slow, said no, or sent what could not be used."""


def standing(code: Code) -> Standing:
    """How a site stands that a round was without."""
    if code == Code.ABSENT:
        return "absent"
    if code in (Code.NO_ANSWER, Code.LATE):
        return "late"
    return "refused" if code.startswith("refused-") else "faulty"
