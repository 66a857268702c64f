"""Checks that every method must pass, ours and yours: `hashprompt methods check FILE.py`."""

from collections.abc import Iterator
from typing import NamedTuple

from hashprompt.errors import UserError
from hashprompt.methods.registry import find_method


class Outcome(NamedTuple):
    """A contract, and how a method breaks it (None: it does not)."""

    scenario: str
    contract: str
    breach: str | None


def check_method(name: str) -> Iterator[Outcome]:
    """Let a method learn small streams of its scenarios, and look at every contract.

    It takes some seconds; outcomes come as they are found.
    """
    from hashprompt.checks.contracts import CONTRACTS
    from hashprompt.checks.example import Example

    for scenario in find_method(name).info.scenarios:
        learns = "it learns three small tasks"
        try:
            example = Example(name, scenario=scenario)
        except Exception as error:  # whatever the method's code raises
            yield Outcome(scenario, learns, _told(error))
            continue
        yield Outcome(scenario, learns, None)
        for contract in CONTRACTS:
            breach = None
            try:
                contract(example)
            except Exception as error:
                breach = _told(error)
            yield Outcome(scenario, contract.__name__.replace("_", " "), breach)


def _told(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, AssertionError | UserError) else f"{type(error).__name__}: {text}"
    )
