"""Validated options: unknown names and wrong values get an error a person can act on."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from hashprompt.errors import UserError, shortened

MOST = 3  # problems that are told at once
LARGEST = 1e30
MOST_LISTED = 800  # characters of known names
KIND = re.compile(r"constrained-\w+|literal\[.*\]")  # as pydantic names them


class Options(BaseModel):
    """Base of all option groups: immutable, every field described, nothing unknown accepted."""

    # `defer_build`: validators are made on first use, and most groups are only listed.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
    main: ClassVar[tuple[str, ...]] = ()  # the options that matter most; empty: all

    @model_validator(mode="after")
    def _of_ordinary_size(self) -> "Options":
        """Products of extreme numbers overflow far from the option that caused it."""
        for name, value in self:
            number = abs(value) if isinstance(value, float) else 0
            if number > LARGEST or 0 < number < 1 / LARGEST:
                raise ValueError(f"{name}={value}: expected 0 or a size of 1e-30 to 1e+30")
            if isinstance(value, int) and abs(value) > 2**63:
                raise ValueError(f"{name}={shortened(value)}: expected a number below 2^63")
        return self

    @classmethod
    def shown_first(cls) -> tuple[str, ...]:
        """Names of the options that a list shows unless all are asked for."""
        return cls.main or tuple(cls.model_fields)


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
        found: dict[str, list[str]] = {}  # a value that may be of two kinds is wrong in two ways
        for problem in error.errors(include_url=False):
            found.setdefault(_what(problem), []).append(_reason(problem))
        problems = [f"{what}{', or: '.join(reasons)}" for what, reasons in found.items()]
        more = [f"and {len(problems) - MOST} more"] if len(problems) > MOST else []
        raise UserError(f"Invalid option: {'; '.join([*problems[:MOST], *more])}.") from error


def _what(problem: Any) -> str:
    """The option and its value; nothing for a rule over several options."""
    if not problem["loc"]:
        return ""
    # Kinds that were tried for a value of several are named, too, which tells a user nothing.
    parts = [str(part) for part in problem["loc"] if not KIND.fullmatch(str(part))]
    name = shortened(".".join(parts))
    return f"{name}={shortened(repr(problem['input']))}: "


def _reason(problem: Any) -> str:
    return shortened(problem["msg"].removeprefix("Value error, "), most=200)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"Did you mean {', '.join(f'`{n}`' for n in near)}?" if near else ""
    hint = hint or f"Known: {shortened(', '.join(names), MOST_LISTED)}."
    return f"Unknown {kind} `{shortened(name)}`. {hint}"
