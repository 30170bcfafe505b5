"""Sentences in German: `data check`, errors and problem.txt, by the system's language or --lang."""

import ast
import re
from pathlib import Path

import pytest

from epifed.cli import main
from epifed.errors import EpifedError, in_german, speak, spoken, spoken_language

SOURCE = Path(__file__).resolve().parents[2] / "src" / "epifed"
READ_BY_OFFICES = (
    *(SOURCE / "data" / "readers" / f"{name}.py" for name in (
        "__init__", "cleaning", "columns", "tables", "values",
    )),
    SOURCE / "data" / "panel.py", SOURCE / "data_check.py", SOURCE / "local_forecast.py",
    SOURCE / "site_report.py", SOURCE / "app" / "reading.py", SOURCE / "app" / "session.py",

)  # fmt: skip
ENGLISH = re.compile(
    r"\b(found|expected|the|of|is|are|were|and|or|not|with|which|that|no|a|for|your|row|"
    r"column|days?|weeks?|counts?|regions?|such|as|to|than|on)\b"
)


def _template(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "7" for v in node.values)
    if isinstance(node, ast.BinOp) and (left := _template(node.left)):
        return left + (_template(node.right) or "7")
    return None


def _sentences(path: Path) -> set[str]:
    """What a module raises or appends to notes and problems, with 7 for all that differs."""
    sentences = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name.endswith("Error") or name == "append":
            sentences |= {text for one in node.args if (text := _template(one)) and " " in text}
    return sentences


@pytest.mark.parametrize(
    "path", READ_BY_OFFICES, ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_every_sentence_that_an_office_reads_is_there_in_german(path: Path) -> None:
    left = {}
    for sentence in _sentences(path):
        # Without what is quoted, options and other words with a hyphen, and an argument's name.
        plain = re.sub(
            r"'[^']*'|--\w\S*( day)?|\w+-\w+|^[\w ]+: |Spalte day", "", in_german(sentence)
        )
        if ENGLISH.search(plain):
            left[sentence] = plain
    assert not left


@pytest.mark.parametrize(
    ("english", "german"),
    [
        (
            "f.csv: row 20, column the day: found '1.141'; expected a number, its decimal "
            "and thousands signs given; add "
            "--thousands . or --decimal .",
            "f.csv: Zeile 20, Spalte the day: gefunden: '1.141'; erwartet: eine Zahl, deren "
            "Zeichen angegeben sind; ergänzen Sie --thousands . oder --decimal .",
        ),
        ("cases: found nothing; expected case counts",
         "cases: gefunden: nichts; erwartet: Fallzahlen"),
        ("no report: 1,798 region-days (67.2%), taken as zero",
         "keine Meldung: 1.798 Tageswerte (67,2 %), als null gezählt"),
        ("Your data end on 2026-05-01, 1 day ago: a training of newer days counts your clients as "
         "zero",
         "Ihre Daten enden am 01.05.2026 (1 Tag her): In einem Training neuerer Tage zählen Ihre "
         "Klienten als null"),
        ("This site sat out the training 'week': the site is not connected",
         "Diese Stelle hat das Training 'week' ausgelassen: der Standort ist nicht verbunden"),
        ("missing argument 'FILE'; see 'epifed data check --help'",
         "es fehlt die Angabe 'FILE'; siehe 'epifed data check --help'"),
        ("no such command 'chek'. Did you mean 'check'?; see 'epifed data --help'",
         "kein Befehl 'chek'. Meinten Sie 'check'?; siehe 'epifed data --help'"),
        ("words that nobody has translated", "words that nobody has translated"),
    ],
)  # fmt: skip
def test_a_sentence_in_german(english: str, german: str) -> None:
    assert in_german(english) == german


def test_the_language_is_that_of_the_system_or_of_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    speak(None)
    assert spoken_language() == "en"
    monkeypatch.setenv("LANG", "de_AT.UTF-8")
    assert spoken("3 days") == "3 Tage"
    monkeypatch.setenv("LC_ALL", "C")
    assert spoken("3 days") == "3 days"
    speak("de")
    assert spoken("3 days") == "3 Tage"
    speak(None)
    with pytest.raises(EpifedError, match="expected en or de"):
        speak("fr")


def _run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["epifed", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_a_check_and_an_error_in_german(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cases.csv"
    rows = "".join(f"2024-05-{day:02d},a,{5 + day % 4}\n" for day in range(1, 21))
    path.write_text("date,region,cases\n" + rows)
    assert _run(monkeypatch, "data", "check", str(path), "--lang", "de") == 1
    out = capsys.readouterr().out
    assert "zu wenig: 20 Tage; eine Vorhersage braucht 28" in out
    assert "20 Tage, 01.05.2024 bis 20.05.2024" in out
    path.write_text("date,region,cases\n" + rows + "2024-05-21,a,many\n")
    assert _run(monkeypatch, "--lang=de", "data", "check", str(path)) == 2
    assert "Zeile 22, Spalte cases: gefunden: 'many'; erwartet: eine Zahl ab 0" in (
        capsys.readouterr().err
    )
    assert _run(monkeypatch, "data", "check", str(path)) == 2
    assert "row 22, column cases: found 'many'" in capsys.readouterr().err
