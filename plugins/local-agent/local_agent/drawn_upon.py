"""Which passages an answer draws upon: those that it names, and those that it quotes.

A search finds passages for whatever is said, since something is always nearest. People are to be
told where an answer comes from, and not what was found beside it.
"""

import re
from collections.abc import Sequence

# So many words in a row that two texts share by chance only seldom; of scripts without blanks, as
# many characters.
_RUN = 6
_MOST_CHARACTERS = 64 * 1024
_CITED = re.compile(r"[\[\u3010]((?:\s*\d{1,3}\s*[,;\u3001\uff0c]?)+)[\]\u3011]")
_UNSPACED = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")

Run = tuple[str, ...]


def drawn_upon(answer: str, passages: Sequence[str], *, question: str = "") -> list[int]:
    """Returns the numbers of the passages, from 1 on, that an answer names or quotes.

    Args:
        answer: The answer; it names a passage as `[1]`.
        passages: What the passages say, in the order of their numbers.
        question: What was asked: to repeat it is no quote.
    """
    answer = answer[:_MOST_CHARACTERS]
    cited = {int(each) for found in _CITED.findall(answer) for each in re.findall(r"\d+", found)}
    said = _runs(answer) - _runs(question[:_MOST_CHARACTERS])
    return [
        number
        for number, passage in enumerate(passages, start=1)
        if number in cited or not said.isdisjoint(_runs(passage))
    ]


def _runs(text: str) -> set[Run]:
    words = _WORD.findall(text.casefold())
    return {tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)}
