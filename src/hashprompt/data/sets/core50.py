"""CORe50, new instances: 50 objects filmed in eleven places; three places are the test set."""

from pathlib import Path

from hashprompt.data.dataset import Source
from hashprompt.data.reading.entries import Entry, Layout, source_from
from hashprompt.data.reading.folders import scan_classes
from hashprompt.data.reading.options import Track, untracked
from hashprompt.data.sets.base import need, read_lines
from hashprompt.errors import UserError, shortened
from hashprompt.options.stream import StreamOptions

FOLDER, RUNS = "core50_128x128", "batches_filelists/NI_inc"
TRAIN, TEST = (1, 2, 4, 5, 6, 8, 9, 11), (3, 7, 10)
OBJECTS = tuple(f"o{number}" for number in range(1, 51))


def load_core50(root: Path, options: StreamOptions, track: Track = untracked) -> Source:
    """Training sessions are domains; the test set is the same after every one of them."""
    folder = root / FOLDER
    need(folder, *(f"s{session}" for session in (*TRAIN, *TEST)))
    entries = [
        Entry(
            path,
            f"s{session}/{label}/{path.name}",
            label,
            "train" if session in TRAIN else "test",
            f"s{session}",
        )
        for session in (*TRAIN, *TEST)
        for label, paths in scan_classes(folder / f"s{session}").classes.items()
        for path in paths
    ]
    odd = sorted({entry.label for entry in entries} - set(OBJECTS))
    if odd:
        raise UserError(f"{folder} holds the objects {', '.join(odd[:3])}. Expected o1 … o50.")
    layout = Layout(
        groups="domains",
        class_names=OBJECTS,
        group_names=_session_order(root, options.domain_order),
        split="NI",
        shared_test=True,
    )
    return source_from("core50", entries, layout, options.reading(upright=False), track=track)


def _session_order(root: Path, order: str) -> tuple[str, ...]:
    """Ascending, or that of an official run, read from its lists."""
    if not order.startswith("ni-run-"):
        return tuple(f"s{session}" for session in TRAIN)
    run = root / RUNS / f"run{order.removeprefix('ni-run-')}"
    sessions = []
    for batch in range(len(TRAIN)):
        file = run / f"train_batch_{batch:02d}_filelist.txt"
        sessions.append("".join(read_lines(file)[:1]).partition("/")[0])
    if sorted(sessions) != sorted(f"s{session}" for session in TRAIN):
        raise UserError(f"The lists in {run} name the sessions {shortened(', '.join(sessions))}.")
    return tuple(sessions)
