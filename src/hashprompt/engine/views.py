"""Transforms of a stream's images, by the options of a run."""

from typing import Any

from hashprompt.backbone.preprocessing import Preprocessing
from hashprompt.data.streams.stream import Stream
from hashprompt.data.transforms.recipes import describe_views, make_views
from hashprompt.data.transforms.views import Views
from hashprompt.options.run import RunOptions


def views_of(options: RunOptions, preprocessing: Preprocessing, stream: Stream) -> Views:
    """Transforms of a stream's images for a backbone."""
    flip = stream.flip if options.flip is None else options.flip
    return make_views(options, stream.name, preprocessing, flip)


def describe_transform(
    options: RunOptions, preprocessing: Preprocessing, stream: Stream
) -> dict[str, Any]:
    """The transforms as data, for the protocol."""
    views = views_of(options, preprocessing, stream)
    described = describe_views(views, options.transform, stream.name)
    return described if views.flip == stream.flip else {**described, "flip": views.flip}
