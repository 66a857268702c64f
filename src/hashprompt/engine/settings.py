"""Options of a run that belong to no method and no stream."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hashprompt.backbone.weights import Normalize, Preprocessing
from hashprompt.data.streams.stream import Stream
from hashprompt.data.transforms.options import Augment, Transform
from hashprompt.data.transforms.recipes import describe_views, make_views
from hashprompt.data.transforms.views import Views
from hashprompt.options import Options


class RunOptions(Options):
    """Input, device and housekeeping."""

    image_size: int | None = Field(None, ge=1, description="pixels; default: the weights' own")
    transform: Transform = Field(
        "weights", description="`weights`: random crops, statistics of the weights; else a paper's"
    )
    augment: Augment | None = Field(
        None, description="random windows of training images; default: the transform's"
    )
    area: float | None = Field(
        None, gt=0, le=1, description="smallest area of `resized-crop`; default: the transform's"
    )
    center: float | None = Field(
        None, ge=0.05, le=1, description="share kept by the clean centre crop; default: the same"
    )
    normalize: Normalize | None = Field(
        None,
        description="pixel mean and deviation, `none` leaves them in [0, 1]; default: the "
        "transform's",
    )
    flip: bool | None = Field(None, description="mirror half of them; default: the stream's")
    eval_batch_size: int = Field(64, ge=1, description="images per step without gradients")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="where to compute")
    devices: int = Field(1, ge=1, description="how many devices share each batch")
    precision: Annotated[  # a bare 32 arrives as a number
        Literal["32", "bf16-mixed", "16-mixed"], BeforeValidator(str)
    ] = Field("32", description="of the ViT")
    checkpoint_minutes: float = Field(2.0, ge=0, description="between saves inside a phase")

    def views(self, preprocessing: Preprocessing, stream: Stream) -> Views:
        """The views of a stream's images for a backbone."""
        flip = stream.flip if self.flip is None else self.flip
        chosen = (self.augment, self.area, self.center, self.normalize)
        return make_views(self.transform, stream.name, preprocessing, flip, *chosen)

    def describe_transform(self, preprocessing: Preprocessing, stream: Stream) -> dict[str, Any]:
        """The same as data, for the protocol."""
        views = self.views(preprocessing, stream)
        told = describe_views(views, self.transform, stream.name)
        return told if views.flip == stream.flip else {**told, "flip": views.flip}
