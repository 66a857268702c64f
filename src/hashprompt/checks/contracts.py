"""The contracts of every method, as functions of an example. A breach is an AssertionError."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import torch

from hashprompt.backbone.preprocessing import weights_hash
from hashprompt.checks.example import (
    Example,
    PowerCutError,
    Recorder,
    SavedState,
    Watch,
    decisive,
    same_step,
)
from hashprompt.methods.base import KINDS
from hashprompt.parts.growing import load_grown

NEAR = 1e-3  # batches of other sizes add up in another order


def logits_do_not_depend_on_the_batch(example: Example) -> None:
    if not example.method.info.batch_invariant:
        return
    images = example.images()
    whole = example.logits(images)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    shuffled = torch.empty_like(whole)
    shuffled[order] = example.logits(images[order])
    ways = {size: [example.logits(part) for part in images.split(size)] for size in (1, 7)}
    for found in (shuffled, *(torch.cat(parts) for parts in ways.values())):
        torch.testing.assert_close(found, whole, rtol=NEAR, atol=NEAR)
        assert torch.equal(found.argmax(1), whole.argmax(1)), "another answer in another batch"


def the_backbone_is_unchanged(example: Example) -> None:
    assert weights_hash(example.backbone.model.vit) == example.vit_before


def what_belongs_to_old_tasks_is_bit_identical_later(example: Example) -> None:
    *earlier, final = example.after_tasks()
    kept = [name for name in final if name.startswith(example.method.keeps)]
    for state in earlier:
        for name in kept:
            old = state[name]
            assert torch.equal(final[name][: len(old)], old), f"{name} has changed"


def only_seen_classes_are_answered_and_none_is_lost(example: Example) -> None:
    tasks = example.stream.tasks
    seen = [max(max(t.classes) for t in tasks[: i + 1]) + 1 for i in range(len(tasks))]
    assert example.widths == seen, f"{example.widths} answers, {seen} classes seen"
    assert example.logits(example.images()).isfinite().all(), "logits are not finite"


def a_saved_learner_predicts_the_same(example: Example) -> None:
    fresh = example.make_method()
    load_grown(fresh, example.method.state_dict())
    images = example.images()
    with torch.no_grad():
        assert torch.equal(fresh.predict(images).logits, example.logits(images))


def a_phase_changes_nothing_when_it_is_asked_for_again(example: Example) -> None:
    """`phases` is called again on resume."""
    state = {k: v.clone() for k, v in example.method.state_dict().items()}
    last = example.stream.tasks[-1]
    example.method.phases(example.trainer.view_of(last))
    for name, tensor in example.method.state_dict().items():
        assert torch.equal(tensor, state[name]), f"asking for phases changed {name}"


def sizes_tell_what_is_stored(example: Example) -> None:
    sizes = example.method.sizes()
    assert set(sizes) == set(KINDS), f"sizes must name {', '.join(KINDS)}"
    assert sizes["head"] >= example.widths[-1]
    stored = sum(tensor.numel() for tensor in example.method.state_dict().values())
    assert sum(sizes.values()) <= stored


def a_run_cut_off_in_any_phase_resumes_to_the_same_bits(example: Example) -> None:
    """Inside, between two epochs and after every phase of every task.

    From each cut the run goes on to the end of the phase, and what is saved there must be what
    the undisturbed run saved there. All that decides a run is in the checkpoint, so what is equal
    at the end of every phase is equal at the end of the run.
    """
    saves = example.recorder.saves
    for cut, end in _cuts(saves):
        recorder, watch = Recorder(cut, end.phase), Watch()
        with suppress(PowerCutError):
            example.make_trainer(recorder, watch).fit()
        where = f"cut at {cut.state['position']}"
        _same(recorder.saves[-1], end, where)
        for place, step in watch.steps.items():
            before = example.watch.steps[place]
            assert same_step(step, before), f"{where}: step {step}, undisturbed {before}"


def _cuts(saves: list[SavedState]) -> Iterator[tuple[SavedState, SavedState]]:
    """Moments to cut a run off at, each with the save at the end of its phase."""
    ends = {save.phase: save for save in saves if save.step == (0, 0)}
    order = list(ends)
    for number, begun in enumerate(order[:-1]):
        inside = [save for save in saves if save.phase == begun and save.step != (0, 0)]
        following = ends[order[number + 1]]
        # A step into the first epoch, its last step, a step into the last epoch.
        chosen = {save.step: save for save in (*inside[:2], *inside[-2:-1])}
        for cut in (ends[begun], *chosen.values()):
            yield cut, following


def _same(found: SavedState, expected: SavedState, where: str) -> None:
    for name, value in decisive(expected).items():
        assert decisive(found)[name] == value, f"{where}: {name} is another"
    assert found.tensors.keys() == expected.tensors.keys(), f"{where}: other tensors"
    for name, tensor in expected.tensors.items():
        assert torch.equal(found.tensors[name], tensor), f"{where}: {name} is another"


CONTRACTS: tuple[Callable[[Example], None], ...] = (
    logits_do_not_depend_on_the_batch,
    the_backbone_is_unchanged,
    what_belongs_to_old_tasks_is_bit_identical_later,
    only_seen_classes_are_answered_and_none_is_lost,
    a_saved_learner_predicts_the_same,
    a_phase_changes_nothing_when_it_is_asked_for_again,
    sizes_tell_what_is_stored,
    a_run_cut_off_in_any_phase_resumes_to_the_same_bits,
)
