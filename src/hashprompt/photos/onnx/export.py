"""Write a version of a classifier as an ONNX model, with its description inside and next to it."""

import hashlib
import json
from pathlib import Path
from typing import Any

from hashprompt import __version__
from hashprompt.errors import UserError
from hashprompt.photos.answers import Answering
from hashprompt.photos.inputs.image_files import content_digest
from hashprompt.photos.inputs.learn_inputs import labelled_images
from hashprompt.photos.onnx.description import DESCRIPTION, MODEL
from hashprompt.photos.onnx.graph import (
    MAX_BYTES,
    OPSET,
    ClassifierGraph,
    onnx_model,
    with_int8_weights,
)
from hashprompt.photos.onnx.model import INSTALL, OnnxClassifier
from hashprompt.photos.predictor import Predictor
from hashprompt.photos.store.config import ClassifierConfig
from hashprompt.photos.store.store import Store, Version
from hashprompt.storage.files import Target, inside, new_folder, write_atomically
from hashprompt.storage.json_files import write_json


def export_onnx(
    store: Store,
    target: Path,
    number: int | None,
    backbone: str | None,
    int8: bool,
    test: str | Path | None,
) -> Path:
    """Export a version; complete, or nothing is written.

    Args:
        target: must not exist, or be empty.
        number: the current version if None.
        backbone: where its backbone is now, if it moved.
        int8: store the large matrices as int8. The loss in accuracy is measured.
        test: photos to measure with; by default held-out ones that are still in place.
    """
    _refuse_without_packages()
    version = store.version(number)
    # A separate backbone and method: making the graph changes them.
    config = ClassifierConfig.stored(store.folder, store.header(), backbone, {"device": "cpu"})
    source, photos = "", list[tuple[Path, str]]()
    if int8 or test is not None:
        source, photos = _test_photos(store, version, test)
    with new_folder(target) as place:
        graph = ClassifierGraph(Predictor(store, config, version.number))
        if (size := graph.size()) > MAX_BYTES:
            raise UserError(
                f"ONNX files hold {MAX_BYTES / 1e9:.0f} GB, this one needs {size / 1e9:.1f} GB. "
                "Use shrinkage=1, with which classes share one matrix, or a smaller backbone."
            )
        model = onnx_model(graph, config.backbone.preprocessing.image_size)
        if int8:
            model = with_int8_weights(model)
        description = _description(version, graph, config, int8)
        _write(place, model, {**description, "accuracy": None})
        if photos:
            classifier = Predictor(store, config, version.number)
            accuracy = _compare(photos, classifier, OnnxClassifier(place))
            _write(place, model, {**description, "accuracy": {"source": source, **accuracy}})
    return target


def _refuse_without_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(f"Exporting to ONNX needs `{error.name}`: {INSTALL}") from error


def _description(
    version: Version, graph: ClassifierGraph, config: ClassifierConfig, int8: bool
) -> dict[str, Any]:
    info, cells = version.info, graph.method.cells
    columns = cells.task.tolist(), cells.label.tolist()
    views = graph.views
    return {
        "weights": "int8" if int8 else "float32",
        "opset": OPSET,
        "runtime": "onnxruntime 1.17 or newer",
        "hashprompt": __version__,
        "version": version.number,
        "classes": info["classes"],
        "integer_labels": info["integer_labels"],
        "sessions": info["batch_names"],
        "cells": [list(pair) for pair in zip(*columns, strict=True)],
        "preprocessing": {
            **views.preprocessing.statistics(),
            "image_size": views.preprocessing.image_size,
            "center": views.center,
            "short_side": config.short_side,
        },
    }


def _write(place: Target, model: Any, description: dict[str, Any]) -> None:
    """The model with its description inside, and the description next to it."""
    del model.metadata_props[:]
    for name, value in description.items():
        text = value if isinstance(value, str) else json.dumps(value)
        model.metadata_props.add(key=name, value=text)
    content = model.SerializeToString()
    write_atomically(inside(place, MODEL), content)
    digest = {"model_sha256": hashlib.sha256(content).hexdigest()}
    write_json(inside(place, DESCRIPTION), {**digest, **description})


def _test_photos(
    store: Store, version: Version, test: str | Path | None
) -> tuple[str, list[tuple[Path, str]]]:
    """Where photos to measure with come from, their files and classes."""
    classes = version.info["classes"]
    if test is None:
        records = store.photos(version).items()
        kept = [(Path(r.path), classes[r.label]) for d, r in records if _still_there(d, r)]
        return "held-out photos", kept
    found = labelled_images(Path(test))
    kept = [(Path(str(e.file)), e.label) for e in found.entries if e.label in classes]
    if not kept:
        raise UserError(f"{test} holds no photos of the known classes.")
    return found.name, kept


def _still_there(digest: str, record: Any) -> bool:
    return record.can_be_tested and content_digest(Path(record.path)) == digest


def _compare(
    photos: list[tuple[Path, str]], classifier: Answering, model: Answering
) -> dict[str, int]:
    """Correct answers of both, over the photos that can be read."""
    paths = [path for path, _ in photos]
    asked = [answering.answers(paths, 1.0, 32)[0] for answering in (classifier, model)]
    rows = [
        (label, str(before.label), str(after.label))
        for (_, label), before, after in zip(photos, *asked, strict=True)
        if before.error is None
    ]
    return {
        "photos": len(rows),
        "before": sum(label == before for label, before, _ in rows),
        "after": sum(label == after for label, _, after in rows),
        "same": sum(before == after for _, before, after in rows),
    }
