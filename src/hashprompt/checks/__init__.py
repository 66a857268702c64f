"""Checks that every method must pass, ours and yours: `hashprompt methods check FILE.py`."""

from collections.abc import Iterator
from typing import NamedTuple

from hashprompt.errors import UserError
from hashprompt.methods.registry import find_method


class CheckResult(NamedTuple):
    """A contract, and how a method breaks it (None: not broken)."""

    scenario: str
    contract: str
    breach: str | None


def check_method(name: str) -> Iterator[CheckResult]:
    """Train a method on small streams of its scenarios, and test every contract.

    It takes some seconds; results come one by one.
    """
    from hashprompt.checks.contracts import CONTRACTS
    from hashprompt.checks.example import Example

    for scenario in find_method(name).info.scenarios:
        learns = "it learns three small tasks"
        try:
            example = Example(name, scenario=scenario)
        except Exception as error:  # whatever the method's code raises
            yield CheckResult(scenario, learns, _message(error))
            continue
        yield CheckResult(scenario, learns, None)
        for contract in CONTRACTS:
            breach = None
            try:
                contract(example)
            except Exception as error:
                breach = _message(error)
            yield CheckResult(scenario, contract.__name__.replace("_", " "), breach)


def _message(error: Exception) -> str:
    kind = "" if isinstance(error, AssertionError | UserError) else f"{type(error).__name__}: "
    return kind + " ".join(str(error).split())
