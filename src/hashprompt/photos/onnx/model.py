"""A classifier that was exported to ONNX: answers by onnxruntime, without torch."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from hashprompt.data.transforms.numpy_view import central_pixels
from hashprompt.errors import UserError, shortened
from hashprompt.photos.answers import Answering, ModelOutput, shaped_as
from hashprompt.photos.onnx.description import DESCRIPTION, MODEL, ExportedModel
from hashprompt.storage.files import inside, read_file
from hashprompt.storage.json_files import DamagedError, read_json

INSTALL = "pip install 'hashprompt[onnx]'"
ADVICE = "Copy the folder again, or export the classifier again."
OUTPUTS = ("probabilities", "unknown", "distances")  # those that answers need


class OnnxClassifier(Answering):
    """A classifier of `export(…, format="onnx")`. It cannot learn; threads may share it.

    Args:
        folder: with `model.onnx` and `model.json`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        self.info = read_description(self.folder)
        content = _model(self.folder, self.info["model_sha256"])
        self._session = _session(self.folder, content)
        self._preprocessing = self.info["preprocessing"]
        classes, sessions = self.info["classes"], self.info["sessions"]
        cells = [(classes[label], sessions[at]) for at, label in self.info["cells"]]
        short_side = self._preprocessing["short_side"]
        super().__init__(classes, self.info["integer_labels"], cells, short_side)

    def predict(self, what: Any, unknown_threshold: float = 0.95, batch_size: int = 32) -> Any:
        """Classify pictures, as `ContinualClassifier.predict` does."""
        return shaped_as(*self.answers(what, unknown_threshold, batch_size))

    def compute(self, images: list[np.ndarray]) -> ModelOutput:
        how = self._preprocessing
        view = (how["image_size"], how["interpolation"], how["center"])
        pixels = np.stack([central_pixels(image, *view) for image in images])
        try:
            arrays = self._session.run(OUTPUTS, {"pixels": pixels})
        except Exception as error:  # onnxruntime has an exception of its own for every status
            raise self._unfit(f"{type(error).__name__}: {error}") from error
        shapes = ((len(images), len(self.classes)), (len(images),), (len(images), len(self.cells)))
        if tuple(array.shape for array in arrays) != shapes:
            raise self._unfit("its outputs do not fit its description")
        return ModelOutput(*arrays)

    def _unfit(self, reason: str) -> UserError:
        model = self.folder / MODEL
        return UserError(f"{model} gives no answers: {shortened(reason, 300)}. {ADVICE}")


def read_description(folder: Path) -> dict[str, Any]:
    """The content of `model.json`."""
    try:
        return read_json(inside(folder, DESCRIPTION), ExportedModel, ADVICE)
    except FileNotFoundError as error:
        raise UserError(f"{folder / DESCRIPTION} is missing. {ADVICE}") from error


def _model(folder: Path, sha256: str) -> bytes:
    """The bytes of the model, if it is the one that the description is of."""
    path = inside(folder, MODEL)
    try:
        content = read_file(path)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. {ADVICE}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DamagedError(path, f"it is not the model that {DESCRIPTION} describes", ADVICE)
    return content


def _session(folder: Path, content: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(f"{folder} needs onnxruntime: {INSTALL}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)  # 0: all cores
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        # From memory: the file cannot name others that would be read beside it.
        return onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has an exception of its own for every status
        raise UserError(
            f"onnxruntime {onnxruntime.__version__} cannot load {folder / MODEL}: "
            f"{shortened(' '.join(str(error).split()), 300)}. A newer one may: {INSTALL}"
        ) from error
