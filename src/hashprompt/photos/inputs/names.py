"""Class names: one spelling each, and a question if two names may mean one class."""

import json
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from hashprompt.errors import UserError, shortened
from hashprompt.options import unknown
from hashprompt.texts import visible

SHOWN = 3  # examples in a message


class SimilarNames(UserError):  # noqa: N818 (a question to the user)
    """Class names that may mean one class: they differ only by case, Unicode form or blanks.

    Args:
        pairs: a given name, and the known or other given one that it resembles.
    """

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs
        more = [f"And {len(pairs) - SHOWN} more such pairs."] if len(pairs) > SHOWN else []
        questions = (visible(_question(*pair)) for pair in pairs[:SHOWN])
        super().__init__("\n".join([*questions, *more]))


def resolve_names(
    labels: Collection[str], known: Sequence[str], rename: Mapping[str, str]
) -> dict[str, str]:
    """The class of each given name.

    Blanks around names are removed, and letters get one Unicode form. If names differ by no more
    than that, or by case, the user decides whether they mean one class.
    """
    chosen = {name: _tidy(new) for old, new in rename.items() for name in _meant(old, labels)}
    names = {name: chosen.get(name, _tidy(name)) for name in labels}
    if not all(names.values()):
        raise UserError("A class name is empty. Give every image a label and every class a name.")
    _refuse_hidden_characters(names.values())
    # A name that was renamed to itself is decided: it is a class of its own.
    open_names = {chosen.get(n, n) for n in labels if n not in chosen or chosen[n] != _tidy(n)}
    pairs = _similar(sorted(open_names - set(known)), known)
    if pairs:
        raise SimilarNames(pairs)
    return names


def check_new_name(name: str, others: Sequence[str]) -> str:
    """The new name of a class, tidied; it must differ from the others by more than case."""
    tidy = _tidy(name)
    if not tidy:
        raise UserError("A class name is empty. Give the class a name.")
    _refuse_hidden_characters([tidy])
    for other in others:
        if _folded(other) == _folded(tidy):
            raise UserError(f"There is a class `{other}` already. To make one of two, merge them.")
    return tidy


def _refuse_hidden_characters(names: Collection[str]) -> None:
    """A class is identified by its name, so all of it must be visible."""
    for name in names:
        if visible(name) != name:
            raise UserError(
                f"The class name `{shortened(name)}` has characters that cannot be seen. Change it."
            )


def _similar(names: Sequence[str], known: Sequence[str]) -> list[tuple[str, str]]:
    """Names and the known names that they resemble, or each other."""
    old, new = defaultdict(list), defaultdict(list)
    for name in known:
        old[_folded(name)].append(name)
    for name in names:
        new[_folded(name)].append(name)
    pairs = [(name, other) for key in new for name in new[key] for other in old.get(key, ())]
    among = [pair for key in new if key not in old for pair in combinations(new[key], 2)]
    return pairs + among


def _meant(name: str, labels: Collection[str]) -> list[str]:
    """The given names that a key of `rename` stands for."""
    found = [name] if name in labels else [other for other in labels if _tidy(other) == _tidy(name)]
    if not found:
        raise UserError(unknown("class to rename", name, labels))
    return found


def _tidy(name: str) -> str:
    return unicodedata.normalize("NFC", name.strip())


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", _tidy(name).casefold())


def _question(name: str, other: str) -> str:
    if _tidy(name) == _tidy(other):  # they look alike: show what differs
        return (
            f"Class names {name!a} and {other!a} differ only by blanks or Unicode form. If they "
            f"are the same class, say rename={{{name!a}: {other!a}}} (--rename '{name}={other}')."
        )
    old, new = json.dumps(name, ensure_ascii=False), json.dumps(other, ensure_ascii=False)
    return (
        f"Class names `{name}` and `{other}` differ only by case. If they are the same class, say "
        f"rename={{{old}: {new}}} (--rename '{name}={other}'); if they are two, "
        f"rename={{{old}: {old}}} (--rename '{name}={name}')."
    )


def shorten(items: Sequence[str]) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
