"""Edit what a classifier knows: forget, merge and rename classes, each as a new version."""

import time
from collections.abc import Callable
from typing import Any

from hashprompt.engine.trainer import Trainer
from hashprompt.methods.averaged_prompt.method import AveragedPrompt
from hashprompt.methods.averaged_prompt.relabelling import relabel
from hashprompt.parts.growing import load_grown, unfit_if_it_fails
from hashprompt.photos.evaluation import evaluate_version, predicted_by_digest, reopen_held_out
from hashprompt.photos.store.config import ClassifierConfig
from hashprompt.photos.store.edits import Edit, edited_info, edited_records, renamed_tests
from hashprompt.photos.store.schemas import PhotoRecord
from hashprompt.photos.store.store import Store, Version
from hashprompt.ui.progress import ProgressBars

FORGOTTEN = -1  # prediction for a photo that was taken for a forgotten class: it was wrong


def apply_edit(
    store: Store,
    config: ClassifierConfig,
    edit: Edit,
    quiet: bool,
    before_commit: Callable[[], object] | None = None,
) -> Version:
    """Make the edited version of the current one, and commit it.

    Held-out photos that are still in place are tested again, so that temperature, the scale of
    `unknown` and accuracies are those of the new classes.

    Args:
        before_commit: called when all else is done.
    """
    started = time.perf_counter()
    version = store.version()
    info, tensors, photos = version.info, store.tensors(version), store.photos(version)
    new, records = edited_info(info, edit), edited_records(photos, edit)
    if edit.only_names:
        new |= renamed_tests(info, edit)
    else:
        bars = () if quiet else (ProgressBars(),)
        trainer = config.trainer({"epochs": 0}, (), store.learning, bars)
        method = trainer.method
        assert isinstance(method, AveragedPrompt)
        load_grown(method, tensors)
        with unfit_if_it_fails():
            relabel(method, edit.ids, [info["images"][name][0] for name in info["classes"]])
        tensors = method.state_dict()
        tested, records = _test(trainer, config, edit, photos, records, new)
        new |= {**tested, "sizes": method.sizes()}
    new["total_seconds"] = round(time.perf_counter() - started, 2)
    if before_commit:
        before_commit()
    return store.commit(config.header(), new, tensors, records)


def _test(
    trainer: Trainer,
    config: ClassifierConfig,
    edit: Edit,
    old: dict[str, PhotoRecord],
    records: dict[str, PhotoRecord],
    info: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, PhotoRecord]]:
    """Results of the edited version on held-out photos, and the records with its predictions."""
    wrong = {d for d, r in records.items() if r.predicted is None and old[d].predicted is not None}
    rows = {d: r._replace(predicted=FORGOTTEN) if d in wrong else r for d, r in records.items()}
    held_out, notes = reopen_held_out(rows, config.short_side)
    there = [held_out] if len(held_out.table) else []
    tested, photos = evaluate_version(trainer, there, edit.names, info)
    if not tested["calibration"]["fitted"] and info["calibration"].get("fitted"):
        notes.append(
            "Too few held-out photos are left to calibrate again: the temperature was fitted on "
            "the classes before."
        )
    found = predicted_by_digest(photos).items()
    records |= {digest: records[digest]._replace(predicted=label) for digest, label in found}
    return {**tested, "notes": notes}, records
