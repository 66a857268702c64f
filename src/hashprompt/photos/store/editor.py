"""Edit what a classifier knows: forget, merge and rename classes, each as a new version."""

import time
from collections.abc import Mapping
from typing import Any

from hashprompt.engine.devices import launch
from hashprompt.engine.trainer import Trainer
from hashprompt.methods.averaged_prompt.method import AveragedPrompt
from hashprompt.methods.averaged_prompt.relabelling import relabel
from hashprompt.parts.growing import load_grown, unfit_if_it_fails
from hashprompt.photos.evaluation import (
    PhotoRecord,
    evaluate_version,
    predicted_by_digest,
    reopen_held_out,
)
from hashprompt.photos.store.config import ClassifierConfig, photo_stream
from hashprompt.photos.store.edits import (
    Edit,
    edited_info,
    edited_records,
    renamed_tests,
)
from hashprompt.photos.store.store import Store, Version
from hashprompt.ui.progress import ProgressBars

FORGOTTEN = -1  # prediction for a photo that was taken for a forgotten class: it was wrong


def apply_edit(
    store: Store,
    config: ClassifierConfig,
    edit: Edit,
    quiet: bool,
    moved: Mapping[str, str] | None = None,
) -> Version:
    """Make the edited version of the current one, and commit it.

    Held-out photos that are still in place are tested again, so that temperature, the scale of
    `unknown` and accuracies are those of the new classes.

    Args:
        moved: held-out photos that will be moved, old path to new.
    """
    started = time.perf_counter()
    version = store.version()
    info, tensors = edited_info(version.info, edit), store.tensors(version)
    records = edited_records(store.photos(version), edit)
    if edit.only_names:
        info |= renamed_tests(version.info, edit)
    else:
        trainer = _trainer(store, config, quiet)
        method = trainer.method
        assert isinstance(method, AveragedPrompt)
        load_grown(method, tensors)
        with unfit_if_it_fails():
            relabel(
                method, edit.ids, [version.info["images"][c][0] for c in version.info["classes"]]
            )
        tensors = method.state_dict()
        info["sizes"] = method.sizes()
        info |= _test(trainer, config, edit, store.photos(version), records, info)
    for row in records.values():
        row[2] = (moved or {}).get(row[2], row[2])
    info["total_seconds"] = round(time.perf_counter() - started, 2)
    return store.commit(config.header(), info, tensors, records)


def trained_parts(store: Store, config: ClassifierConfig) -> list[str]:
    """Parts of the current version that were trained on several classes at once, in words."""
    method = config.make_method({"epochs": 0})
    load_grown(method, store.tensors(store.version()))
    trained = ["the shared prompt", "the head's rows of other classes"]
    return trained * len(method.average)


def _trainer(store: Store, config: ClassifierConfig, quiet: bool) -> Trainer:
    return Trainer(
        config.make_method({"epochs": 0}),
        photo_stream(()),
        config.backbone,
        config.run_options.model_copy(update={"checkpoint_minutes": float("inf")}),
        launch(config.run_options),
        store.learning,  # nothing is saved there
        config.seed,
        () if quiet else (ProgressBars(),),
    )


def _test(
    trainer: Trainer,
    config: ClassifierConfig,
    edit: Edit,
    old: dict[str, list[Any]],
    records: dict[str, list[Any]],
    info: dict[str, Any],
) -> dict[str, Any]:
    """Results of the edited version on held-out photos; `records` get its predictions."""
    rows = {digest: PhotoRecord(*row) for digest, row in records.items()}
    for digest, row in rows.items():
        if row.predicted is None and old[digest][3] is not None:
            rows[digest] = row._replace(predicted=FORGOTTEN)
    held_out, notes = reopen_held_out(rows, config.short_side)
    tested, photos = evaluate_version(
        trainer, [held_out] if len(held_out.table) else [], edit.names, info
    )
    if not tested["calibration"]["fitted"] and info["calibration"].get("fitted"):
        notes.append(
            "Too few held-out photos are left to calibrate again: the temperature was fitted on "
            "the classes before."
        )
    for digest, predicted in predicted_by_digest(photos).items():
        records[digest][3] = predicted
    return {**tested, "notes": notes}
