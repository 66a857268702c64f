"""What `learn` and edits of the classes return; imports no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashprompt.photos.report.changes import Changes
from hashprompt.texts import visible


@dataclass(frozen=True)
class LearnResult:
    """What `learn` did."""

    version: int
    changes: Changes
    report: Path | None = None
    finished_before: bool = False  # there was nothing left to do
    training: str = ""  # why the version has no training, where some was planned

    def text(self) -> str:
        lines = ["This session is finished already."] * self.finished_before
        lines += [self.changes.text(), *filter(None, [self.training])]
        if self.report:
            lines.append(f"Report, with pictures of confused photos: {visible(self.report)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        report = str(self.report) if self.report else None
        how = {"finished_before": self.finished_before, "training": self.training}
        return {"version": self.version, "report": report, **how, **self.changes.to_dict()}


@dataclass(frozen=True)
class EditResult:
    """What an edit of the classes did."""

    version: int
    changes: Changes
    remains: tuple[str, ...] = ()  # of a class that was forgotten, for the user to know

    def text(self) -> str:
        return "\n".join([self.changes.text(), *map(visible, self.remains)])

    def to_dict(self) -> dict[str, Any]:
        return {"version": self.version, "remains": list(self.remains), **self.changes.to_dict()}
