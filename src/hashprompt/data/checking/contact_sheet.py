"""A contact sheet: some images of every class on one page."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import matplotlib
import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from hashprompt.data.dataset import ImageSource, ImageTable
from hashprompt.errors import shortened
from hashprompt.texts import visible

CELL, GAP, LABEL, HEAD = 96, 6, 210, 52  # pixels
MAX_CLASSES, TRAIN, TEST = 24, 6, 2
PHOTO, COLUMNS = 160, 6  # of a sheet of photos
INK, GROUND, FAINT = (20, 20, 20), (255, 255, 255), (120, 120, 120)


def contact_sheet(source: ImageSource) -> Image.Image:
    """Rows are classes (at most 24, spread over all), six training and two test images each."""
    present = torch.unique(source.train.labels).tolist()
    chosen = present[:: max(1, -(-len(present) // MAX_CLASSES))]
    second = LABEL + TRAIN * (CELL + GAP) + 2 * GAP  # where test images begin
    size = second + TEST * (CELL + GAP) + GAP, HEAD + len(chosen) * (CELL + GAP)
    page = Image.new("RGB", size, GROUND)
    draw = ImageDraw.Draw(page)
    large, small = _font(14), _font(11)
    title = f"{source.name}: {len(chosen)} of {len(present)} classes"
    draw.text((GAP, GAP), visible(title), INK, large)
    parts = (("training", source.train, TRAIN, LABEL), ("test", source.test, TEST, second))
    for heading, _, _, left in parts:
        draw.text((left, GAP + 20), heading, FAINT, large)
    for row, label in enumerate(chosen):
        top = HEAD + row * (CELL + GAP)
        draw.text((GAP, top + 30), shortened(source.class_names[label], 25), INK, large)
        counts = [f"{int((t.labels == label).sum())} {part}" for part, t, _, _ in parts]
        draw.text((GAP, top + 50), ", ".join(counts), FAINT, small)
        for _, table, count, left in parts:
            for column, image in enumerate(_some(table, label, count)):
                page.paste(_thumbnail(image), (left + column * (CELL + GAP), top))
    return page


def photo_sheet(title: str, images: Sequence[Tensor]) -> bytes:
    """Photos (3, H, W) uint8 side by side under a title, as JPEG without metadata."""
    rows = -(-len(images) // COLUMNS) or 1
    size = COLUMNS * (PHOTO + GAP) + GAP, HEAD + rows * (PHOTO + GAP)
    page = Image.new("RGB", size, GROUND)
    ImageDraw.Draw(page).text((GAP, GAP + 8), visible(title), INK, _font(18))
    for number, image in enumerate(images):
        row, column = divmod(number, COLUMNS)
        corner = GAP + column * (PHOTO + GAP), HEAD + row * (PHOTO + GAP)
        page.paste(_thumbnail(image, PHOTO), corner)
    content = BytesIO()
    page.save(content, "JPEG", quality=85)
    return content.getvalue()


def _font(size: int) -> ImageFont.FreeTypeFont:
    """A font of matplotlib with Latin, Greek and Cyrillic letters."""
    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(file), size)


def _some(table: ImageTable, label: int, count: int) -> list[Tensor]:
    """Images of a class, spread over its rows."""
    rows = (table.labels == label).nonzero()[:, 0]
    if not len(rows):
        return []
    places = torch.linspace(0, len(rows) - 1, min(count, len(rows))).long()
    return list(table.images[rows[places]])


def _thumbnail(image: Tensor, side: int = CELL) -> Image.Image:
    """The whole image in the middle of a square."""
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    return ImageOps.pad(picture, (side, side), Image.Resampling.BICUBIC, GROUND)
