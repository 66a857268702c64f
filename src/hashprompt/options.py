"""Validated options: unknown names and wrong values get an error a person can act on."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hashprompt.errors import UserError


class Options(BaseModel):
    """Base of all option groups: immutable, every field described, nothing unknown accepted."""

    model_config = ConfigDict(extra="forbid", frozen=True)


G = TypeVar("G", bound=Options)


def split_options(values: Mapping[str, Any], *groups: type[Options]) -> tuple[dict[str, Any], ...]:
    """Hand each value to the group that knows its name.

    Raises:
        UserError: for a name that no group knows, with the nearest valid names.
    """
    known = {name for group in groups for name in group.model_fields}
    for name in values:
        if name not in known:
            raise UserError(unknown("option", name, known))
    return tuple({k: v for k, v in values.items() if k in g.model_fields} for g in groups)


def build(group: type[G], values: Mapping[str, Any]) -> G:
    """An option group, with errors in words."""
    try:
        return group(**values)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc']))}={e['input']!r}: {e['msg']}"
            if e["loc"]
            else e["msg"].removeprefix("Value error, ")  # a rule over several options
            for e in error.errors()
        )
        raise UserError(f"Invalid option: {problems}.") from error


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"Did you mean {', '.join(f'`{n}`' for n in near)}?" if near else ""
    return f"Unknown {kind} `{name}`. {hint or 'Known: ' + ', '.join(names) + '.'}"
