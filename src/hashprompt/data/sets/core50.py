"""CORe50, new instances: 50 objects filmed in eleven places; three places are the test set."""

from pathlib import Path

from hashprompt.data.entries import Entry, Layout, source_from
from hashprompt.data.folders import scan_classes
from hashprompt.data.sets.base import DataSet, MissingFiles, Remote, need
from hashprompt.data.settings import StreamOptions
from hashprompt.data.tables import Source
from hashprompt.errors import UserError

FOLDER, RUNS = "core50_128x128", "batches_filelists/NI_inc"
TRAIN, TEST = (1, 2, 4, 5, 6, 8, 9, 11), (3, 7, 10)
OBJECTS = tuple(f"o{number}" for number in range(1, 51))


def load_core50(root: Path, options: StreamOptions) -> Source:
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
    return source_from("core50", entries, layout, options.reading(upright=False))


def _session_order(root: Path, order: str) -> tuple[str, ...]:
    """Ascending, or that of an official run, read from its lists."""
    if not order.startswith("ni-run-"):
        return tuple(f"s{session}" for session in TRAIN)
    run = root / RUNS / f"run{order.removeprefix('ni-run-')}"
    sessions = []
    for batch in range(len(TRAIN)):
        file = run / f"train_batch_{batch:02d}_filelist.txt"
        if not file.is_file():
            raise MissingFiles(file)
        with file.open(encoding="utf-8") as lines:
            sessions.append(lines.readline().partition("/")[0])
    if sorted(sessions) != sorted(f"s{session}" for session in TRAIN):
        raise UserError(f"The lists in {run} name the sessions {', '.join(sessions)}.")
    return tuple(sessions)


CORE50 = DataSet(
    "core50",
    "CORe50, 50 objects, domain-incremental: 8 sessions to learn, 3 others as one test set",
    load_core50,
    (
        Remote(
            "http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip",
            md5="745f3373fed08d69343f1058ee559e13",
            gives=FOLDER,
        ),
        Remote(
            "https://vlomonaco.github.io/core50/data/batches_filelists.zip",
            md5="e3297508a8998ba0c99a83d6b36bde62",
            gives="batches_filelists",
        ),
    ),
    f"{FOLDER}/s<1-11>/o<1-50>/*.png, and for domain_order=ni-run-N the lists {RUNS}/run<N>/*.txt",
    "CC BY 4.0",
    (119_894, 44_972),
)
