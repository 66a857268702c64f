"""A ViT that learns: copies of its weights, and snapshots of them."""

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.backbone.weights import weights_hash
from hashprompt.errors import UserError
from hashprompt.parts import budget
from hashprompt.parts.growing import UnfitState, load_grown
from hashprompt.parts.trained_weights import Snapshot, Trainable, TrainedWeights

DEPTH = 2
WB = ("weight", "bias")
IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def small_backbone() -> Backbone:
    torch.manual_seed(0)
    vit = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=16, depth=DEPTH, num_heads=2, num_classes=0
    )
    for parameter in vit.parameters():  # timm starts biases and tokens at zero: too easy
        nn.init.normal_(parameter, std=0.2)
    return Backbone(vit)


def numbers(trained: nn.Module) -> int:
    return sum(tensor.numel() for tensor in trained.state_dict().values())


def whole_vit() -> int:
    return sum(p.numel() for p in small_backbone().vit.parameters())


# Which weights. ------------------------------------------------------------------------------


def test_all_are_all_weights_of_the_vit() -> None:
    backbone = small_backbone()
    trained = TrainedWeights(backbone, "all")
    assert trained.names == [name for name, _ in backbone.vit.named_parameters()]
    for name, value in backbone.vit.named_parameters():
        assert torch.equal(trained.tensors()[name], value)
    assert numbers(trained) == whole_vit()


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


def test_more_last_blocks_than_there_are_is_refused() -> None:
    with pytest.raises(UserError, match=f"last {DEPTH + 1} blocks .* has {DEPTH}"):
        TrainedWeights(small_backbone(), "last", blocks=DEPTH + 1)


# The original and the copy. ------------------------------------------------------------------


@pytest.mark.parametrize("which", ["all", "last", "norms"])
def test_the_original_keeps_its_bytes_while_the_copy_trains(which: Trainable) -> None:
    backbone = small_backbone()
    before, features = weights_hash(backbone.vit), backbone(IMAGES)
    trained = TrainedWeights(backbone, which)
    own = {name: value.clone() for name, value in trained.tensors().items()}
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        backbone(IMAGES, Injection(weights=trained.tensors())).square().sum().backward()
        optimizer.step()
    assert weights_hash(backbone.vit) == before
    assert torch.equal(backbone(IMAGES), features)
    assert all(parameter.grad is None for parameter in backbone.vit.parameters())
    stayed = [name for name, value in trained.tensors().items() if torch.equal(value, own[name])]
    assert stayed == []
    after = backbone(IMAGES, Injection(weights=trained.tensors()))
    assert (after - features).abs().max() > 1e-3


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


def test_a_saved_copy_loads_by_name() -> None:
    trained = TrainedWeights(small_backbone(), "last")
    for parameter in trained.parameters():
        parameter.data.normal_()
    fresh = TrainedWeights(small_backbone(), "last")
    load_grown(fresh, trained.state_dict())
    assert fresh.names == trained.names
    for name, value in trained.tensors().items():
        assert torch.equal(fresh.tensors()[name], value)
        assert fresh.tensors()[name].requires_grad


def test_a_copy_of_other_weights_does_not_load() -> None:
    saved = TrainedWeights(small_backbone(), "last").state_dict()
    with pytest.raises(UnfitState, match="missing or left over"):
        load_grown(TrainedWeights(small_backbone(), "norms"), saved)


# Memory. -------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 7])
def test_copies_beyond_the_budget_are_refused_with_the_estimate(
    monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    need = 4 * copies * whole_vit()
    monkeypatch.setattr(budget, "memory_budget", lambda: need)
    TrainedWeights(small_backbone(), copies=copies)  # just fits
    monkeypatch.setattr(budget, "memory_budget", lambda: need - 1)
    with pytest.raises(UserError, match=f"Training {whole_vit():,} weights .* GB. At most half"):
        TrainedWeights(small_backbone(), copies=copies)


def test_the_estimate_comes_before_the_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = small_backbone()
    monkeypatch.setattr(budget, "memory_budget", lambda: 10)

    def taken(*_: object) -> Tensor:
        raise AssertionError("memory was taken")

    monkeypatch.setattr(torch.Tensor, "clone", taken)
    with pytest.raises(UserError, match="GB"):
        TrainedWeights(backbone)


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


def test_a_snapshot_stays_as_it_was_taken() -> None:
    trained = TrainedWeights(small_backbone(), "last")
    snapshot = Snapshot(trained.tensors())
    snapshot.take(trained.tensors())
    before = {name: value.detach().clone() for name, value in trained.tensors().items()}
    for parameter in trained.parameters():
        parameter.data.add_(1)
    for name, value in snapshot.tensors().items():
        assert torch.equal(value, before[name])
        assert not value.requires_grad
    assert list(snapshot.parameters()) == []


def test_a_snapshot_takes_rows_that_came_later_and_loads_again() -> None:
    snapshot = Snapshot(values())
    snapshot.take({**values(), "head.weight": torch.randn(5, 16)})
    fresh = Snapshot(values())
    load_grown(fresh, snapshot.state_dict())
    assert fresh.taken
    assert fresh.tensors().keys() == values().keys()
    for name, value in snapshot.tensors().items():
        assert torch.equal(fresh.tensors()[name], value)


def test_an_empty_snapshot_loads_as_empty() -> None:
    fresh = Snapshot(values())
    load_grown(fresh, Snapshot(values()).state_dict())
    assert not fresh.taken
