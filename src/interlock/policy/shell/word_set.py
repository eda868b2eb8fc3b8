"""Sets of words, written as one text."""


def make_word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())
