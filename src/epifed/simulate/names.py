"""Invented place names from syllables; each is given out once."""

import numpy as np

_STEMS = (
    "Alm Arn Bel Birk Brev Bron Dalm Dorl Eck Elb Erl Falk Fenn Flem Gall Gern Gor Grav Hall Harl "
    "Hesp Holm Ilm Imm Jess Kalm Karn Kell Korb Lamm Lehn Lind Lorn Mark Melk Mohr Morn Nass Nerl "
    "Oden Orl Pell Plan Quer Rall Rehn Rosch Sand Schell Sieg Sorn Stark Tann Torn Ull Urm Varn "
    "Wall Wend Werl Wold Zell Zorn Zwick"
)
_FIRST = _STEMS.split()
_MIDDLE = ["", "e", "en", "er", "in", "ol", "am", "ers", "els", "ing"]
_ENDINGS = (
    "au bach berg brück büll burg dorf feld furt hagen hausen heim hofen horst kirchen leben "
    "moor rode roth stadt stedt tal walde weiler winkel zell"
)
_LAST = _ENDINGS.split()
_BEFORE = ["", "Alt", "Bad ", "Groß ", "Klein ", "Neu", "Nieder", "Ober", "Unter", "Sankt "]
_STATES = ["land", "mark", "gau", "ingen", "ien", "stein"]


def place_names(count: int, rng: np.random.Generator, *, state: bool = False) -> tuple[str, ...]:
    """So many different names, of places or of states."""
    if state:
        parts: tuple[list[str], ...] = (_FIRST, _MIDDLE[:3], _STATES)
    elif count <= len(_FIRST) * len(_MIDDLE) * len(_LAST) // 2:
        parts = (_FIRST, _MIDDLE, _LAST)
    else:
        parts = (_BEFORE, _FIRST, _MIDDLE, _LAST)
    sizes = [len(part) for part in parts]
    chosen = rng.choice(int(np.prod(sizes)), count, replace=False)
    digits = np.unravel_index(chosen, sizes)
    words = ([part[i] for i in which] for part, which in zip(parts, digits, strict=True))
    names = ("".join(word) for word in zip(*words, strict=True))
    return tuple(name if " " in name else name.capitalize() for name in names)
