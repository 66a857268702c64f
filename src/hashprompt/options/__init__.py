"""Validated options, with errors in words for unknown names and wrong values."""

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from hashprompt.errors import UserError, shortened
from hashprompt.texts import argument_texts

MAX_PROBLEMS = 3  # in one message
MAX_NUMBER = 1e30
MAX_LISTED = 800  # characters of known names
KIND = re.compile(r"constrained-\w+|literal\[.*\]")  # pydantic's names of types


class Options(BaseModel):
    """Base of all option groups: immutable, without unknown names.

    `Args:` in the docstring of a group, or of its base, describes the options.
    """

    # `defer_build`: validators are made on first use; most groups are only listed.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
    main: ClassVar[tuple[str, ...]] = ()  # the options listed without `--all`; empty: all

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = cls.model_fields
        own = {name for name in inspect.get_annotations(cls) if name in fields}
        explicit = {name for name in own if fields[name].description}
        for base in reversed(cls.__mro__):
            for name, text in argument_texts(base.__doc__).items():
                if name in fields.keys() - explicit:
                    fields[name].description = text.rstrip(".")

    @model_validator(mode="after")
    def _has_ordinary_numbers(self) -> "Options":
        """Extreme numbers overflow later, far from the option that caused it."""
        for name, value in self:
            number = abs(value) if isinstance(value, float) else 0
            if number > MAX_NUMBER or 0 < number < 1 / MAX_NUMBER:
                raise ValueError(f"{name}={value}: expected 0 or a size from 1e-30 to 1e+30")
            if isinstance(value, int) and abs(value) > 2**63:
                raise ValueError(f"{name}={shortened(value)}: expected a number below 2^63")
        return self


G = TypeVar("G", bound=Options)


def split_options(values: Mapping[str, Any], *groups: type[Options]) -> tuple[dict[str, Any], ...]:
    """Give each value to the group that has its name.

    Raises:
        UserError: for a name that no group has, with the nearest valid names.
    """
    known = {name for group in groups for name in group.model_fields}
    for name in values:
        if name not in known:
            raise UserError(unknown("option", name, known))
    return tuple({k: v for k, v in values.items() if k in g.model_fields} for g in groups)


def build(group: type[G], values: Mapping[str, Any]) -> G:
    """An option group; invalid values raise a `UserError`."""
    try:
        return group(**values)
    except ValidationError as error:
        # One value may fail in two ways, one for each allowed type.
        found: dict[str, list[str]] = {}
        for problem in error.errors(include_url=False):
            reason = shortened(problem["msg"].removeprefix("Value error, "), limit=200)
            found.setdefault(_what(problem), []).append(reason)
        problems = [f"{what}{', or: '.join(reasons)}" for what, reasons in found.items()]
        if len(problems) > MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more"]
        raise UserError(f"Invalid option: {'; '.join(problems)}.") from error


def _what(problem: Any) -> str:
    """The option and its value; empty for a rule over several options."""
    if not problem["loc"]:
        return ""
    # Without the types that pydantic tried, which mean nothing to a user.
    parts = [str(part) for part in problem["loc"] if not KIND.fullmatch(str(part))]
    name = shortened(".".join(parts))
    return f"{name}={shortened(repr(problem['input']))}: "


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message about a name that does not exist."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"Did you mean {', '.join(f'`{n}`' for n in near)}?" if near else ""
    hint = hint or f"Known: {shortened(', '.join(names), MAX_LISTED)}."
    return f"Unknown {kind} `{shortened(name)}`. {hint}"
