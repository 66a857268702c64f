"""The memory of images: who is kept, with what chance, and that nothing kept changes."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor, tensor

from hashprompt.errors import UserError
from hashprompt.parts.growing import load_grown
from hashprompt.parts.memory import Memory, herding_order


def picture(number: int) -> Tensor:
    """An image (3, 2, 2) that says which it is."""
    return torch.full((3, 2, 2), number, dtype=torch.uint8)


class Stream:
    """Images numbered as they come; remembers which were read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def pixels(self, numbers: list[int]) -> object:
        def pixels(rows: Tensor) -> Tensor:
            chosen = [numbers[row] for row in rows.tolist()]
            self.read += chosen
            return torch.stack([picture(n) for n in chosen]) if chosen else torch.zeros(0, 3, 2, 2)

        return pixels


def offer(memory: Memory, labels: list[int], first: int = 0, task: int = 0) -> Stream:
    """Images `first`, `first + 1`, … of these classes."""
    stream = Stream()
    memory.offer(tensor(labels), stream.pixels([first + i for i in range(len(labels))]), task)
    return stream


def keep(memory: Memory, labels: list[int], first: int = 0, task: int = 0) -> Stream:
    """After a task; the last image is the best."""
    stream = Stream()
    numbers = [first + i for i in range(len(labels))]
    order = torch.arange(len(labels)).flip(0)
    memory.keep(tensor(labels), stream.pixels(numbers), task, order)
    return stream


def held(memory: Memory) -> list[int]:
    """The numbers of the images that are kept."""
    return memory.images[:, 0, 0, 0].tolist()


# The reservoir. ----------------------------------------------------------------------------


def test_a_reservoir_keeps_every_image_with_the_same_chance() -> None:
    torch.manual_seed(0)
    times = np.zeros(12)
    for _ in range(800):
        memory = Memory(total=4)
        offer(memory, [0, 1, 0, 0, 0])  # batches of differing size
        offer(memory, [1, 1, 1, 0, 2, 0, 0], first=5, task=1)
        assert len(memory) == 4
        times[held(memory)] += 1
    assert times.sum() == 3200
    assert chisquare(times).pvalue > 0.01


def test_with_places_per_class_the_chance_is_the_same_within_a_class() -> None:
    torch.manual_seed(0)
    labels = [0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0]
    times = np.zeros(11)
    for _ in range(800):
        memory = Memory(per_class=2)
        offer(memory, labels[:4])
        offer(memory, labels[4:], first=4, task=1)
        assert memory.labels.bincount().tolist() == [2, 2]
        times[held(memory)] += 1
    for label in (0, 1):
        own = [times[i] for i in range(11) if labels[i] == label]
        assert sum(own) == 1600
        assert chisquare(own).pvalue > 0.01


def test_all_are_kept_while_there_is_room() -> None:
    memory = Memory(per_class=3)
    offer(memory, [0, 0, 1, 5])
    assert held(memory) == [0, 1, 2, 3]
    assert memory.seen.tolist() == [2, 1, 0, 0, 0, 1]


# Greedy and balanced. ----------------------------------------------------------------------


def test_the_greedy_memory_gives_up_images_of_its_largest_class_for_new_ones() -> None:
    torch.manual_seed(0)
    memory = Memory(total=4, policy="balanced")
    offer(memory, [0, 0, 0, 0, 0])  # four places, one class: the first four
    assert sorted(held(memory)) == [0, 1, 2, 3]
    offer(memory, [1], first=10)  # 0 · 2 < 4: one of class 0 goes
    assert memory.labels.bincount().tolist() == [3, 1]
    offer(memory, [1], first=11)  # 1 · 2 < 4: another goes
    assert memory.labels.bincount().tolist() == [2, 2]
    before = held(memory)
    offer(memory, [1, 0, 1, 0], first=20)  # each class has its half
    assert held(memory) == before
    offer(memory, [2], first=30)  # 4 places for 3 classes: the first of the largest ones gives
    assert memory.labels.bincount().tolist() == [1, 2, 1]
    assert {10, 11, 30} < set(held(memory))


def test_the_greedy_memory_per_class_keeps_the_first() -> None:
    memory = Memory(per_class=2, policy="balanced")
    offer(memory, [0, 0, 0, 1, 0, 1, 1])
    assert held(memory) == [0, 1, 3, 5]


# Chosen after a task. ----------------------------------------------------------------------


def test_the_best_of_each_class_are_kept() -> None:
    memory = Memory(per_class=2)
    stream = keep(memory, [0, 1, 0, 1, 0, 1])
    assert set(held(memory)) == {5, 4, 3, 2}
    assert sorted(stream.read) == [2, 3, 4, 5]
    keep(memory, [2, 2, 2], first=10, task=1)  # new classes cost old ones nothing
    assert set(held(memory)) == {5, 4, 3, 2, 12, 11}


def test_classes_share_a_total_and_the_best_stay_longest() -> None:
    memory = Memory(total=6)
    keep(memory, [0] * 4 + [1] * 4)
    assert set(held(memory)) == {3, 2, 1, 7, 6, 5}
    keep(memory, [2] * 4, first=10, task=1)
    assert set(held(memory)) == {3, 2, 7, 6, 13, 12}
    keep(memory, [3] * 4, first=20, task=2)  # six places for four classes: older ones get more
    assert set(held(memory)) == {3, 2, 7, 6, 13, 23}


def test_domains_share_the_places_of_a_class() -> None:
    memory = Memory(per_class=5)
    keep(memory, [0] * 6)
    assert set(held(memory)) == {5, 4, 3, 2, 1}
    keep(memory, [0] * 6, first=10, task=1)
    assert set(held(memory)) == {5, 4, 3, 15, 14}
    keep(memory, [0] * 6, first=20, task=2)
    assert set(held(memory)) == {5, 4, 15, 14, 25}
    assert memory.tasks.bincount().tolist() == [2, 2, 1]


# What is kept. -----------------------------------------------------------------------------


def test_only_what_is_kept_is_read() -> None:
    torch.manual_seed(0)
    memory = Memory(per_class=2)
    first = offer(memory, [0] * 9)
    assert sorted(first.read) == sorted(held(memory))
    before = set(held(memory))
    second = offer(memory, [0] * 9, first=9)
    assert set(second.read) == set(held(memory)) - before


def test_pixels_never_change_and_belong_to_their_labels() -> None:
    torch.manual_seed(0)
    memory = Memory(total=7)
    for task in range(6):
        labels = [(task + i) % 4 for i in range(10)]
        offer(memory, labels, first=10 * task, task=task)
        for image, label, of in zip(memory.images, memory.labels, memory.tasks, strict=True):
            number = int(image[0, 0, 0])
            assert torch.equal(image, picture(number))
            assert (int(of), int(label)) == (number // 10, (number // 10 + number % 10) % 4)
    assert memory.images.dtype == torch.uint8


def test_outputs_stay_as_they_were_and_are_padded_when_the_head_grows() -> None:
    torch.manual_seed(0)
    memory = Memory(per_class=2)
    given = {}
    for task in range(3):
        width = 2 * (task + 1)
        labels = [2 * task, 2 * task + 1] * 3 + [0, 0]
        outputs = torch.randn(8, width)
        given |= {8 * task + i: row for i, row in enumerate(outputs)}
        pixels = Stream().pixels([8 * task + i for i in range(8)])
        memory.offer(tensor(labels), pixels, task, outputs)  # type: ignore[arg-type]
    assert memory.outputs.shape == (12, 6)
    assert len(set(memory.widths.tolist())) == 3
    for number, row, width in zip(held(memory), memory.outputs, memory.widths, strict=True):
        assert torch.equal(row[:width], given[number])
        assert not row[width:].any()


def test_a_narrower_output_leaves_nothing_of_a_wider_one() -> None:
    memory = Memory(total=1)
    wide = torch.ones(1, 3)
    memory.offer(tensor([0]), Stream().pixels([0]), 0, wide)  # type: ignore[arg-type]
    for number in range(1, 40):  # one of them will take the place
        outputs = torch.ones(1, 2)
        memory.offer(tensor([0]), Stream().pixels([number]), 0, outputs)  # type: ignore[arg-type]
    assert held(memory) != [0]
    assert memory.outputs.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize("options", [{"per_class": 3}, {"total": 8}])
@pytest.mark.parametrize("policy", ["reservoir", "balanced", "keep"])
def test_capacity_is_never_exceeded_and_every_fill_can_be_saved(
    policy: str, options: dict[str, int]
) -> None:
    generator = torch.Generator().manual_seed(0)
    kind = "balanced" if policy == "balanced" else "reservoir"
    memory = Memory(**options, policy=kind)  # type: ignore[arg-type]
    for task in range(25):
        fresh = Memory(**options)
        load_grown(fresh, memory.state_dict())
        assert len(fresh) == len(memory)
        for name, value in memory.state_dict().items():
            assert torch.equal(fresh.state_dict()[name], value)
        count = int(torch.randint(1, 12, (), generator=generator))
        labels = torch.randint(1 + task // 4, (count,), generator=generator).tolist()
        (keep if policy == "keep" else offer)(memory, labels, task=task)
        assert {len(part) for part in memory.rows(slice(None))} == {len(memory)}
        if "total" in options:
            assert len(memory) <= 8
        else:
            assert memory.labels.bincount().max() <= 3
    assert len(memory) > 6


def test_images_are_drawn_once_each() -> None:
    memory = Memory(per_class=10)
    offer(memory, [0] * 6)
    torch.manual_seed(0)
    drawn = memory.draw(4)
    assert len(set(drawn.images[:, 0, 0, 0].tolist())) == 4
    assert sorted(memory.draw(99).images[:, 0, 0, 0].tolist()) == list(range(6))
    counts = np.zeros(6)
    for _ in range(600):
        counts[memory.draw(2).images[:, 0, 0, 0].tolist()] += 1
    assert chisquare(counts).pvalue > 0.01


def test_images_of_another_size_are_refused_in_words() -> None:
    memory = Memory(per_class=2)
    offer(memory, [0])
    with pytest.raises(UserError, match="images of 2×2 pixels, and these have 5×4"):
        memory.offer(tensor([1]), lambda rows: torch.zeros(len(rows), 3, 5, 4), 0)


# Herding. ----------------------------------------------------------------------------------


def test_herding_takes_the_image_that_brings_the_mean_nearest() -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(14, 5), tensor([0, 1] * 7)
    unit = features.numpy().astype(np.float64)
    unit /= np.sqrt((unit**2).sum(1))[:, None]
    expected: list[int] = []
    for label in (0, 1):
        rows = [i for i in range(14) if labels[i] == label]
        mean = np.mean([unit[i] for i in rows], axis=0)
        chosen: list[int] = []
        while len(chosen) < len(rows):
            rest = [i for i in rows if i not in chosen]
            gaps = [((mean - unit[[*chosen, i]].mean(0)) ** 2).sum() for i in rest]
            chosen.append(rest[int(np.argmin(gaps))])
        expected += chosen
    assert herding_order(features, labels).tolist() == expected
