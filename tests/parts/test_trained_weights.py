"""A ViT that learns: copies of its weights, and snapshots of them."""

import pytest
import torch
from fakes import DEPTH, small_backbone
from torch import Tensor, nn

from hashprompt.backbone import Injection
from hashprompt.errors import UserError
from hashprompt.parts.growing import load_grown
from hashprompt.parts.trained_weights import Snapshot, TrainedWeights
from hashprompt.storage import files

WB = ("weight", "bias")
IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def numbers(trained: nn.Module) -> int:
    return sum(tensor.numel() for tensor in trained.state_dict().values())


def whole_vit() -> int:
    return sum(p.numel() for p in small_backbone().vit.parameters())


# Which weights. ------------------------------------------------------------------------------


def test_last_are_the_last_blocks_and_the_final_norm() -> None:
    trained = TrainedWeights(small_backbone(), "last", blocks=1)
    places = {name.rsplit(".", 1)[0].split(".attn")[0].split(".mlp")[0] for name in trained.names}
    assert {place.removesuffix(".norm1").removesuffix(".norm2") for place in places} == {
        f"blocks.{DEPTH - 1}",
        "norm",
    }
    both = TrainedWeights(small_backbone(), "last", blocks=DEPTH)
    assert len(both.names) == 2 * len(trained.names) - 2  # the final norm's two are there once


def test_norms_are_the_weights_and_biases_of_all_norms() -> None:
    trained = TrainedWeights(small_backbone(), "norms")
    expected = [f"blocks.{i}.norm{k}.{w}" for i in range(DEPTH) for k in (1, 2) for w in WB]
    assert trained.names == [*expected, *(f"norm.{w}" for w in WB)]


def test_a_head_alone_needs_no_weight_of_the_vit() -> None:
    backbone = small_backbone()
    trained = TrainedWeights(backbone, "head")
    assert trained.tensors() == {}
    assert Injection(weights=trained.tensors()).kind == "plain"


# The original and the copy. ------------------------------------------------------------------


def test_the_values_are_what_the_vit_would_compute_with_them() -> None:
    backbone, other = small_backbone(), small_backbone()
    trained = TrainedWeights(backbone)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in other.vit.named_parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / 5)
        trained.tensors()[name].data.copy_(parameter)
    found = backbone(IMAGES, Injection(weights=trained.tensors()))
    torch.testing.assert_close(found, other.vit(IMAGES))


def test_reset_takes_the_original_values_back() -> None:
    backbone = small_backbone()
    trained = TrainedWeights(backbone, "norms")
    held = list(trained.parameters())
    for parameter in held:
        parameter.data.add_(1)
    trained.reset(dict(backbone.vit.named_parameters()))
    assert all(new is old for new, old in zip(trained.parameters(), held, strict=True))
    for name, value in trained.tensors().items():
        assert torch.equal(value, backbone.vit.get_parameter(name))
        assert value.requires_grad


# Memory. -------------------------------------------------------------------------------------


def test_training_beyond_the_budget_is_refused_with_the_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need = 4 * 4 * whole_vit()
    monkeypatch.setattr(files, "memory_budget", lambda: need)
    TrainedWeights(small_backbone())  # just fits
    monkeypatch.setattr(files, "memory_budget", lambda: need - 1)
    with pytest.raises(UserError, match=f"Training {whole_vit():,} weights .* GB. At most half"):
        TrainedWeights(small_backbone())


# Snapshots. ----------------------------------------------------------------------------------


def values() -> dict[str, Tensor]:
    trained = TrainedWeights(small_backbone(), "last")
    return {**trained.tensors(), "head.weight": nn.Parameter(torch.zeros(0, 16))}


def test_a_snapshot_holds_nothing_until_it_is_taken() -> None:
    snapshot = Snapshot(values())
    assert not snapshot.taken
    assert numbers(snapshot) == 0
    snapshot.take(values())
    assert snapshot.taken
    assert numbers(snapshot) == sum(value.numel() for value in values().values())


def test_a_snapshot_takes_rows_that_came_later_and_loads_again() -> None:
    snapshot = Snapshot(values())
    snapshot.take({**values(), "head.weight": torch.randn(5, 16)})
    fresh = Snapshot(values())
    load_grown(fresh, snapshot.state_dict())
    assert fresh.taken
    assert fresh.tensors().keys() == values().keys()
    for name, value in snapshot.tensors().items():
        assert torch.equal(fresh.tensors()[name], value)
