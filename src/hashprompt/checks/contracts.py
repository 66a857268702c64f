"""The contracts of every method, as functions of an example. A breach is an AssertionError."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby, pairwise

import torch

from hashprompt.backbone.preprocessing import weights_hash
from hashprompt.checks.example import Example, PowerCutError, Recorder, SavedState, Watch, compare
from hashprompt.methods.base import KINDS
from hashprompt.parts.growing import load_grown

NEAR = 1e-3  # other batch sizes sum in another order


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
        assert torch.equal(found.argmax(1), whole.argmax(1)), "other predictions in another batch"


def the_backbone_is_unchanged(example: Example) -> None:
    same = weights_hash(example.backbone.model.vit) == example.vit_before
    assert same, "weights of the ViT have changed"


def state_of_old_tasks_stays_bit_identical(example: Example) -> None:
    *earlier, final = example.after_tasks()
    kept = [name for name in final if name.startswith(example.method.keeps)]
    for state in earlier:
        for name in kept:
            old = state[name]
            assert torch.equal(final[name][: len(old)], old), f"{name} has changed"


def all_seen_classes_and_no_others_are_predicted(example: Example) -> None:
    tasks = example.stream.tasks
    seen = [max(max(t.classes) for t in tasks[: i + 1]) + 1 for i in range(len(tasks))]
    assert example.widths == seen, f"{example.widths} outputs, {seen} classes seen"
    assert example.logits(example.images()).isfinite().all(), "logits are not finite"


def a_saved_method_predicts_the_same(example: Example) -> None:
    fresh = example.make_method()
    load_grown(fresh, example.method.state_dict())
    images = example.images()
    with torch.no_grad():
        assert torch.equal(fresh.predict(images).logits, example.logits(images))


def calling_phases_again_changes_nothing(example: Example) -> None:
    """`phases` is called again on resume."""
    state = {k: v.clone() for k, v in example.method.state_dict().items()}
    last = example.stream.tasks[-1]
    example.method.phases(example.trainer.view_of(last))
    for name, tensor in example.method.state_dict().items():
        assert torch.equal(tensor, state[name]), f"calling `phases` changed {name}"


def sizes_count_the_stored_values(example: Example) -> None:
    sizes = example.method.sizes()
    assert set(sizes) == set(KINDS), f"sizes must name {', '.join(KINDS)}"
    classes = example.widths[-1]
    assert sizes["head"] >= classes, (
        f"`stores` counts {sizes['head']} values as head, of {classes} classes"
    )
    stored = sum(tensor.numel() for tensor in example.method.state_dict().values())
    assert sum(sizes.values()) <= stored, f"`stores` counts more than the {stored} stored values"


def an_interrupted_run_resumes_to_the_same_bits(example: Example) -> None:
    """Interrupted within epochs, between epochs and after every phase of every task.

    From each cut a new process continues to the next cut. Its checkpoint there must equal that of
    the uninterrupted run. The checkpoint holds the complete state of a run, so equal checkpoints
    at every cut mean equal final results.
    """
    for cut, end in pairwise(_cuts(example.recorder.saves)):
        recorder, watch = Recorder(cut, end.state["position"]), Watch()
        with suppress(PowerCutError):
            example.make_trainer(recorder, watch).fit()
        where = f"cut at {cut.state['position']}"
        compare(recorder.saves[-1], end, where)
        for place, step in watch.steps.items():
            before = example.watch.steps[place]
            assert step == before, f"{where}: step {step}, uninterrupted {before}"


def _cuts(saves: list[SavedState]) -> Iterator[SavedState]:
    """Where to interrupt a run: at the start of every phase, and within it."""
    for _, found in groupby(saves, key=lambda save: save.phase):
        begun, *inside = found
        # A step into the first epoch, its last step, a step into the last epoch.
        chosen = {save.step: save for save in (*inside[:2], *inside[-2:-1])}
        yield from (begun, *chosen.values())


CONTRACTS: tuple[Callable[[Example], None], ...] = (
    logits_do_not_depend_on_the_batch,
    the_backbone_is_unchanged,
    state_of_old_tasks_stays_bit_identical,
    all_seen_classes_and_no_others_are_predicted,
    a_saved_method_predicts_the_same,
    calling_phases_again_changes_nothing,
    sizes_count_the_stored_values,
    an_interrupted_run_resumes_to_the_same_bits,
)
