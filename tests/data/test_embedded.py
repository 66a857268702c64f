"""The sources that need no download, and the backbone pretrained on drawings."""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import as_file, files

import pytest
import torch
from safetensors import safe_open
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from hashprompt.data.dataset import ImageSource, ImageTable
from hashprompt.data.streams.draw import Style, draw_pairs, draw_recipes, ink
from hashprompt.data.streams.embedded import digits, glyphs, glyphs_domains, glyphs_pairs

Sources = dict[str, ImageSource]


@pytest.fixture(scope="module")
def sources() -> Sources:
    return {
        source.name: source for source in (glyphs(), glyphs_pairs(), glyphs_domains(), digits())
    }


def nano_file() -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and weights as published."""
    with (
        as_file(files("hashprompt") / "assets" / "nano.safetensors") as path,
        safe_open(path, framework="pt") as file,
    ):
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def nano(pretrained: bool) -> nn.Module:
    metadata, weights = nano_file()
    torch.manual_seed(0)
    model = VisionTransformer(**json.loads(metadata["architecture"]), num_classes=0)
    if pretrained:
        model.load_state_dict(weights, strict=True)
    return model.eval()


@pytest.mark.parametrize("build", [glyphs, glyphs_pairs, glyphs_domains, digits])
def test_two_builds_are_equal_byte_for_byte(
    build: Callable[[], ImageSource], sources: Sources
) -> None:
    again = build()
    for table in ("train", "test"):
        first, second = getattr(sources[again.name], table), getattr(again, table)
        assert torch.equal(first.images, second.images)
        assert torch.equal(first.labels, second.labels)


@pytest.mark.parametrize("name", ["glyphs", "glyphs-pairs", "glyphs-domains", "digits"])
def test_images_are_32_pixel_colour_bytes_with_one_label_each(name: str, sources: Sources) -> None:
    source = sources[name]
    for table in (source.train, source.test):
        assert table.images.dtype == torch.uint8
        assert table.images.shape == (len(table), 3, 32, 32)
        assert table.labels.dtype == torch.int64
        assert set(table.labels.tolist()) == set(range(len(source.class_names)))


def counts(table: ImageTable) -> set[int]:
    return set(table.labels.bincount().tolist())


@pytest.mark.parametrize("name", ["glyphs", "glyphs-pairs"])
def test_glyphs_have_60_balanced_classes_in_ten_tasks(name: str, sources: Sources) -> None:
    source = sources[name]
    assert (len(source.class_names), source.tasks, source.flip) == (60, 10, False)
    assert counts(source.train) == {40}
    assert counts(source.test) == {20}


def test_domains_hold_every_class_equally_often(sources: Sources) -> None:
    source = sources["glyphs-domains"]
    assert source.tasks == len(source.domain_names) == 5
    for table, each in ((source.train, 30), (source.test, 15)):
        assert table.domains is not None
        pairs = torch.stack([table.domains, table.labels], dim=1)
        found, times = pairs.unique(dim=0, return_counts=True)
        assert len(found) == 5 * 10
        assert set(times.tolist()) == {each}


def test_digits_are_split_without_overlap_and_stratified(sources: Sources) -> None:
    source = sources["digits"]
    assert len(source.train) + len(source.test) == 1797
    share = source.train.labels.bincount() / (
        source.train.labels.bincount() + source.test.labels.bincount()
    )
    assert (share - 0.7).abs().max() < 0.01


def test_no_test_picture_of_the_drawn_sources_is_in_training(sources: Sources) -> None:
    for name in ("glyphs", "glyphs-pairs", "glyphs-domains"):
        source = sources[name]
        everything = torch.cat([source.train.images, source.test.images]).flatten(1)
        assert len({row.tobytes() for row in everything.numpy()}) == len(everything)


def test_pen_leaves_ink_where_it_is_set_down_and_none_far_away() -> None:
    field = ink(torch.tensor([[[0.5, -0.5]]]), torch.tensor([1.0]))[0]  # x right, y up the picture
    row, column = divmod(int(field.argmax()), 32)
    assert (row, column) in {(7, 23), (7, 24), (8, 23), (8, 24)}
    assert field[31, 0] < 1e-6


def test_the_label_of_a_pair_is_the_warm_shape() -> None:
    """Of a dot and a line, pictures of the line have more warm pixels, and no more cool ones."""
    recipes = draw_recipes(5, marks=2)
    points = torch.zeros_like(recipes.points)
    points[1, :, 0] = torch.linspace(-0.8, 0.8, points.shape[1])
    labels = torch.tensor([0, 1]).repeat_interleave(300)
    rng = torch.Generator().manual_seed(1)
    images = draw_pairs(replace(recipes, points=points), labels, rng, Style(noise=0.0, ground=0.0))
    redness = images[:, 0].int() - images[:, 2].int()
    warm, cool = ((sign * redness > 60).sum((1, 2)).float() for sign in (1, -1))
    dot, line = (warm[labels == kind].mean() for kind in (0, 1))
    assert line > 2 * dot
    behind_dot, behind_line = (cool[labels == kind].mean() for kind in (0, 1))
    assert 0.6 < behind_line / behind_dot < 1.1  # a warm line hides more of what is behind it


def test_nano_file_is_small_half_precision_and_fits_its_architecture() -> None:
    metadata, weights = nano_file()
    assert all(value.dtype == torch.float16 for value in weights.values())
    assert sum(value.numel() * 2 for value in weights.values()) < 6_000_000
    assert not any(name.startswith("head.") for name in weights)
    assert json.loads(metadata["mean"]) == json.loads(metadata["std"]) == [0.5, 0.5, 0.5]
    nano(pretrained=True)


def probe(model: nn.Module, source: ImageSource, rows: int) -> float:
    """Accuracy of a linear classifier trained on the features of the first `rows` images."""
    with torch.no_grad():
        train, test = (
            model(table.images[:rows].float() / 127.5 - 1).numpy()
            for table in (source.train, source.test)
        )
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1)).fit(
        train, source.train.labels[:rows]
    )
    return classifier.score(test, source.test.labels[:rows])


def test_pretrained_features_are_clearly_better_than_random_ones(sources: Sources) -> None:
    source = sources["digits"]
    trained = probe(nano(pretrained=True), source, rows=300)
    untrained = probe(nano(pretrained=False), source, rows=300)
    assert trained > untrained + 0.1
