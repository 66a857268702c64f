"""DER++: its loss by loops, and logits that are never refreshed."""

import pytest
import torch
from fakes import Task, batches_of, learn, rehearsed

close = torch.testing.assert_close


@pytest.mark.parametrize("classes", [(2, 3, 4), (0, 1)])
def test_the_loss_holds_on_to_stored_logits_and_labels(classes: tuple[int, ...]) -> None:
    options = {"logit_weight": 0.7, "replay_weight": 0.2, "replay_batch": 3}
    method, (first,) = rehearsed("derpp", (0, 1), buffer_per_class=2, **options)
    task = Task(1, classes)
    method.begin_task(task)
    method.head.weight.data.normal_()  # loud enough that each image counts
    batch, _ = next(batches_of(method.phases(task)[0], task))
    torch.manual_seed(5)
    losses, _, outputs = method.phases(task)[0].step(batch)
    torch.manual_seed(5)
    kept, other = method.memory.draw(3), method.memory.draw(3)
    assert not torch.equal(kept.images, other.images)
    method.requires_grad_(False)
    squares = []
    for image, stored in zip(first.see(kept.images), kept.outputs, strict=True):
        z = method.logits(image[None])[0]
        squares += [float(z[k] - stored[k]) ** 2 for k in range(2)]  # the head had two outputs
    replay = 0.0
    for image, label in zip(first.see(other.images), other.labels, strict=True):
        replay -= float(method.logits(image[None])[0].log_softmax(0)[label]) / 3
    new = 0.0
    for image, label in zip(batch.inputs, batch.labels, strict=True):
        new -= float(method.logits(image[None])[0].log_softmax(0)[label]) / len(batch.labels)
    expected = {"ce": new, "logits": 0.7 * sum(squares) / 6, "replay": 0.2 * replay}
    assert set(losses) == set(expected)
    for name, value in expected.items():
        close(losses[name], torch.tensor(value), rtol=1e-4, atol=1e-5)
    close(outputs, method.logits(batch.inputs))


def test_images_of_differing_widths_count_by_their_outputs() -> None:
    from hashprompt.methods.derpp.method import logit_change

    now = torch.tensor([[1.0, 5.0, 9.0, 9.0], [2.0, 2.0, 3.0, 9.0]])
    stored = torch.tensor([[0.0, 7.0, 0.0], [2.0, 2.0, 0.0]])
    # (1, 4) of the first image, (0, 0, 9) of the second
    close(logit_change(now, stored, torch.tensor([2, 3])), torch.tensor(14 / 5))


def test_stored_logits_are_those_at_insertion_and_never_refreshed() -> None:
    torch.manual_seed(0)
    method, _ = rehearsed("derpp", (0, 1), buffer_per_class=3)
    before = {
        tuple(i.flatten().tolist()): z
        for i, z in zip(method.memory.images, method.memory.outputs, strict=True)
    }
    assert all(len(z) == 2 for z in before.values())
    later = Task(1, (2, 3, 4))
    learn(method, later)
    memory = method.memory
    old = [row for row in range(len(memory)) if memory.tasks[row] == 0]
    assert len(old) == 6
    for row in old:
        z = before[tuple(memory.images[row].flatten().tolist())]
        assert torch.equal(memory.outputs[row], torch.cat((z, torch.zeros(3))))
        assert memory.widths[row] == 2
    assert memory.widths[memory.tasks == 1].unique().tolist() == [5]
    with torch.no_grad():  # the learner itself has moved on
        now = method.logits(later.see(memory.images[old]))[:, :2]
    assert (now - memory.outputs[old][:, :2]).abs().max() > 1e-3


def test_what_is_stored_is_what_the_head_said_of_the_image_in_that_step() -> None:
    method, _ = rehearsed("derpp", (0, 1), buffer_per_class=9, epochs=1, lr=1e-9)
    task = Task(0, (0, 1))
    with torch.no_grad():
        expected = method.logits(task.see(method.memory.images, "train"))
    assert len(method.memory) == 12
    close(method.memory.outputs, expected, rtol=1e-4, atol=1e-4)


def test_images_are_offered_in_every_epoch() -> None:
    """So that logits of a trained head are stored: 6 images of each class, in 5 epochs."""
    method, _ = rehearsed("derpp", (0, 1), buffer_per_class=2, epochs=5)
    assert method.memory.seen.tolist() == [30, 30]
    assert len(method.memory) == 4
