"""One version of a classifier as an ONNX graph, from pixels to probabilities."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hashprompt.errors import UserError, shortened
from hashprompt.parts.cells import Cells
from hashprompt.photos.predictor import Predictor

OPSET = 20  # the first in which GELU is an operator; onnxruntime reads it from 1.17 on
MAX_BYTES = 2 * 10**9  # of an ONNX file, which is one protobuf message
INT8_FROM = 4096  # numbers of a matrix from which on it is worth storing it as int8


class GraphOutput(NamedTuple):
    """The outputs of the graph for B images, by name."""

    probabilities: Tensor  # (B, C) float32, calibrated
    unknown: Tensor  # (B,) float32, share of held-out photos that were closer
    task: Tensor  # (B,) int64, session of the most likely class Gaussian
    distances: Tensor  # (B, M) float32, of features to the class Gaussians


class FixedCells(Cells):
    """The cells of a version that learns no more: their number of classes is a constant."""

    def __init__(self, cells: Cells) -> None:
        super().__init__()
        self.task, self.label, self._classes = cells.task, cells.label, cells.classes

    @property
    def classes(self) -> int:
        return self._classes


class Quantiles(nn.Module):
    """Rank of values among the stored quantiles: `np.interp`, as a sum over its pieces."""

    def __init__(self, kept: list[float]) -> None:
        super().__init__()
        values = torch.tensor(kept, dtype=torch.float64)
        self.known = len(kept) > 0
        self.start: Tensor = nn.Buffer(values[:-1])
        self.width: Tensor = nn.Buffer(values.diff())

    def forward(self, values: Tensor) -> Tensor:
        """(B,) -> (B,) in 0…1."""
        values = values.double()[:, None]
        if not self.known:
            return torch.full_like(values[:, 0], 0.5)
        above = values - self.start
        # A piece without width is passed as soon as it is reached.
        flat = self.width <= 0
        passed = (above / torch.where(flat, 1.0, self.width)).clamp(0, 1)
        return torch.where(flat, (above >= 0).double(), passed).mean(1)


class ClassifierGraph(nn.Module):
    """Everything between the pixels of an image and the answer about it.

    Args:
        predictor: the version; its method is changed, so nothing else may use it.
    """

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.method, info = predictor.method, predictor.info
        self.method.cells = FixedCells(self.method.cells)
        self.strangeness = predictor.strangeness
        self.quantiles = Quantiles(info["distances"])
        self.temperature: float = info["temperature"]
        self.views = predictor.config.views
        statistics = self.views.preprocessing
        self.pixel_mean: Tensor = nn.Buffer(torch.tensor(statistics.mean).view(-1, 1, 1))
        self.pixel_std: Tensor = nn.Buffer(torch.tensor(statistics.std).view(-1, 1, 1))

    def size(self) -> int:
        """Bytes of all tensors."""
        strange = self.strangeness
        discriminants = (self.method.discriminant(), strange.classes, strange.everything)
        matrices = [d.whiten for d in discriminants if d is not None]
        return sum(t.numel() * t.element_size() for t in [*self.state_dict().values(), *matrices])

    def forward(self, pixels: Tensor) -> GraphOutput:
        """Answers about images (B, 3, S, S) in [0, 1]."""
        prediction = self.method.predict((pixels - self.pixel_mean) / self.pixel_std)
        assert prediction.features is not None
        assert prediction.task is not None
        strangeness, distances = self.strangeness.of(prediction.features)
        unknown = self.quantiles(strangeness)
        probabilities = (prediction.logits.double() / self.temperature).softmax(1)
        return GraphOutput(probabilities.float(), unknown.float(), prediction.task, distances)


def onnx_model(graph: ClassifierGraph, image_size: int) -> Any:
    """The graph as an `onnx.ModelProto` with any number of images.

    Raises:
        UserError: if something in it has no counterpart in ONNX.
    """
    pixels = torch.zeros(2, 3, image_size, image_size)  # two: one would be taken for fixed
    try:
        with torch.no_grad():
            program = torch.onnx.export(
                graph.eval(),
                (pixels,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=["pixels"],
                output_names=list(GraphOutput._fields),
                opset_version=OPSET,
                verbose=False,
            )
    except Exception as error:  # of torch, of onnxscript and of what they call
        cause: BaseException = error
        while cause.__cause__ is not None:  # the first of many is the reason
            cause = cause.__cause__
        reason = shortened(" ".join(str(cause).split()), 300)
        raise UserError(
            f"This classifier cannot be expressed in ONNX with torch {torch.__version__}: {reason}"
        ) from error
    assert program is not None
    model = program.model_proto
    # `len(tensor)` anywhere in the graph would fix it; `tensor.shape[0]` does not.
    if not model.graph.input[0].type.tensor_type.shape.dim[0].dim_param:
        raise UserError("This classifier cannot be expressed in ONNX for any number of images.")
    return model


def with_int8_weights(model: Any) -> Any:
    """Store large float32 matrices as int8 with a scale for each output.

    They become float32 when the model is loaded: this saves size, not time.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    graph, nodes = model.graph, []
    multiplied = {node.input[1] for node in graph.node if node.op_type == "MatMul"}
    used = set(multiplied)  # as they are, or turned, or the rows of some outputs
    for node in reversed(graph.node):
        if node.op_type in ("Transpose", "Slice") and node.output[0] in used:
            used.add(node.input[0])
    for tensor in list(graph.initializer):
        name = tensor.name
        if name not in used or tensor.data_type != tensor.FLOAT or len(tensor.dims) != 2:
            continue
        matrix = numpy_helper.to_array(tensor)
        if matrix.size < INT8_FROM:
            continue
        axis = 1 if name in multiplied else 0  # along which the numbers of an output lie
        largest = np.abs(matrix).max(1 - axis, keepdims=True)
        scale = np.maximum(largest / 127, np.finfo(np.float32).tiny)
        whole = np.rint(matrix / scale).astype(np.int8)
        parts = {f"{name}.int8": whole, f"{name}.scale": scale.squeeze(1 - axis)}
        graph.initializer.remove(tensor)
        graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in parts.items())
        nodes.append(helper.make_node("DequantizeLinear", list(parts), [name], axis=axis))
    for node in reversed(nodes):  # before all that use them
        graph.node.insert(0, node)
    return model
