"""What `learn` and edits of the classes answer; imports no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashprompt.photos.report.changes import Changes
from hashprompt.texts import visible


@dataclass(frozen=True)
class Learned:
    """What a `learn` did."""

    version: int
    changes: Changes
    report: Path | None = None
    finished_before: bool = False  # there was nothing left to do
    training: str = ""  # what held-out photos said of it, if the first look is what stays

    def text(self) -> str:
        if self.finished_before:
            return f"This learn is finished already.\n{self.changes.text()}"
        report = f"\nReport, with pictures of confused photos: {visible(self.report)}"
        training = f"\n{self.training}" if self.training else ""
        return self.changes.text() + training + (report if self.report else "")

    def to_dict(self) -> dict[str, Any]:
        report = str(self.report) if self.report else None
        how = {"finished_before": self.finished_before, "training": self.training}
        return {"version": self.version, "report": report, **how, **self.changes.to_dict()}


@dataclass(frozen=True)
class Edited:
    """What an edit of the classes did."""

    version: int
    changes: Changes
    stays: tuple[str, ...] = ()  # of what was forgotten, for the user to know

    def text(self) -> str:
        return "\n".join([self.changes.text(), *map(visible, self.stays)])

    def to_dict(self) -> dict[str, Any]:
        return {"version": self.version, "stays": list(self.stays), **self.changes.to_dict()}
