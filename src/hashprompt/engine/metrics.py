"""Accuracy over tasks: FAA, CAA and FM as the paper defines them, and BWT."""

from collections.abc import Sequence

# accuracy[i][t]: percent on task i after learning task t; None where t < i or not measured.
Matrix = Sequence[Sequence[float | None]]


def average_after(accuracy: Matrix, t: int) -> float | None:
    """A_t: unweighted mean over the tasks learned so far."""
    values = [accuracy[i][t] for i in range(t + 1)]
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def summarise(accuracy: Matrix, shared_test: bool = False) -> dict[str, float | None]:
    """FAA = A_T; CAA = mean of A_t; FM = mean over i < T of max_{i≤t<T}(a_it − a_iT);
    BWT = mean over i < T of a_iT − a_ii. None where it is undefined: in a joint run, and
    forgetting if all tasks share one test set."""
    last = len(accuracy) - 1
    averages = [average_after(accuracy, t) for t in range(last + 1)]
    known = [a for a in averages if a is not None]
    metrics: dict[str, float | None] = {"FAA": averages[last], "CAA": None, "FM": None, "BWT": None}
    if len(known) < len(averages):
        return metrics
    metrics["CAA"] = sum(known) / len(known)
    if last and not shared_test:
        rows = [[v for v in row if v is not None] for row in accuracy[:last]]
        metrics["FM"] = sum(max(row[:-1]) - row[-1] for row in rows) / last
        metrics["BWT"] = sum(row[-1] - row[0] for row in rows) / last
    return metrics
