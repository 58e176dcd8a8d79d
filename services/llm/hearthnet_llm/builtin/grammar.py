"""The grammar of one call's arguments, in the Lark form of llguidance.

Punctuation is fixed and there is no optional white space, so the model spends its tokens on values. A value
has a bounded JSON schema, or consists of key words: words of the question in their order, of which the model
may skip a few, then a few of its own. When a model of this size rephrases freely, it drops the decisive word
in about one question out of six; restricted to the words of the question it does not (docs/models.md has the
figures).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

_WORD: Final = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_HEAD: Final = "%llguidance {}"
_MOST_WORDS: Final = 32
_COMPACT: Final = {"whitespace_flexible": False}


class KeyWords(msgspec.Struct, frozen=True):
    """Rules for key words.

    At most `skip` words of the question are left out in a row, and `least` to `most` phrases are added. A
    phrase is one or two words in lower case. With `lower` False the question's words keep their case.
    """

    skip: int
    least: int
    most: int
    lower: bool = True


def of_json(schema: Mapping[str, Any]) -> str:
    """Return the grammar of JSON that fits the bounded `schema`."""
    return f"{_HEAD}\nstart: {_json_rule(schema)}\n"


def of_call(schema: Mapping[str, Any], said: str, key_words: Mapping[str, KeyWords]) -> str:
    """Return the grammar of arguments for the bounded object `schema`.

    The fields in `key_words` hold key words from `said`; if there is one, all fields must be required.
    """
    styles = {name: style for name, style in key_words.items() if name in schema.get("properties", {})}
    words = words_of(said)
    if not styles or not words:
        return of_json(schema)
    start: list[str] = []
    rules: list[str] = []
    for number, (name, part) in enumerate(schema["properties"].items()):
        comma = "," if number else "{"
        start.append(f"{_literal(f'{comma}{json.dumps(name)}:')} f{number}")
        if name in styles:
            rules += _key_word_rules(f"f{number}", words, styles[name])
        else:
            rules.append(f"f{number}: {_json_rule(part)}")
    return "\n".join([_HEAD, f'start: {" ".join(start)} "}}"', *rules, ""])


def of_quotes(sentences: Sequence[str], most: int) -> str:
    """Return the grammar of an answer of up to `most` of the `sentences`, in their order."""
    rules = [_HEAD, f"start: {' | '.join(f'q0x{index}' for index in range(len(sentences)))}"]
    for depth in range(most):
        for index, sentence in enumerate(sentences):
            later = [f"q{depth + 1}x{other}" for other in range(index + 1, len(sentences))]
            more = f' (" " ({" | ".join(later)}))?' if later and depth + 1 < most else ""
            rules.append(f"q{depth}x{index}: {_literal(sentence)}{more}")
    return "\n".join([*rules, ""])


def words_of(said: str) -> list[str]:
    """Return the words of a text in order; at most 32."""
    return _WORD.findall(said)[:_MOST_WORDS]


def _json_rule(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': _COMPACT})}"


def _key_word_rules(name: str, words: list[str], style: KeyWords) -> Iterator[str]:
    """Yield one rule for each word, with the words that may follow it.

    The end may follow only the last `skip` + 1 words.
    """
    words = [word.lower() for word in words] if style.lower else words
    yield f'{name}: "\\"" {name}s "\\""'
    yield f"{name}s: {' | '.join(_steps(name, words, -1, style.skip))}"
    for index in range(len(words)):
        yield f"{name}w{index}: {' | '.join(_steps(name, words, index, style.skip))}"
    yield f'{name}t: (", " {name}p){{{style.least},{style.most}}}' if style.most else f'{name}t: ""'
    yield f"{name}p: /[a-z]{{3,14}}( [a-z]{{3,14}})?/"


def _steps(name: str, words: list[str], index: int, skip: int) -> Iterator[str]:
    blank = " " if index >= 0 else ""
    for later in range(index + 1, min(len(words), index + skip + 2)):
        yield f"{_literal(blank + words[later])} {name}w{later}"
    if index >= 0 and len(words) - 1 - index <= skip:
        yield f"{name}t"


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
