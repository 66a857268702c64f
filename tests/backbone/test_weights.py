"""Weights of other programs: every published layout at reduced size, and the way to the files."""

import argparse
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save, save_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor
from web_server import WebServer, web_server

from hashprompt.backbone.catalogue import CATALOGUE, find_file
from hashprompt.backbone.hub import obtain
from hashprompt.backbone.weights import load_backbone
from hashprompt.data.transforms.recipes import make_views
from hashprompt.errors import UserError
from hashprompt.options.run import RunOptions
from hashprompt.runs import benchmark
from hashprompt.storage import download
from hashprompt.storage.download import file_hash

SMALL = "test_vit"  # timm's: 6 blocks, width 64, 160 px
IMAGENET = (0.485, 0.456, 0.406)
Tensors = dict[str, Tensor]


# Files as their authors' programs write them. ----------------------------------------------


def vit(name: str = SMALL, device: str = "cpu") -> VisionTransformer:
    torch.manual_seed(0)
    with torch.device(device):
        model = timm.create_model(name, num_classes=0).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model


def under(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def google(model: VisionTransformer, classes: int = 9) -> dict[str, Tensor]:
    """Google's names and shapes, made from timm's the other way round."""
    width, heads = model.embed_dim, model.blocks[0].attn.num_heads
    arrays: Tensors = {"cls": model.cls_token, "pre_logits/bias": model.norm.bias}
    arrays["embedding/kernel"] = model.patch_embed.proj.weight.permute(2, 3, 1, 0)
    arrays["embedding/bias"] = model.patch_embed.proj.bias
    arrays["Transformer/posembed_input/pos_embedding"] = model.pos_embed
    arrays["pre_logits/kernel"] = model.norm.bias.new_zeros(width, width)
    arrays["head/kernel"] = model.norm.bias.new_zeros(width, classes)
    arrays["head/bias"] = model.norm.bias.new_zeros(classes)
    norms = {"Transformer/encoder_norm": model.norm}
    dense = {}
    for i, block in enumerate(model.blocks):
        at = f"Transformer/encoderblock_{i}"
        norms |= {f"{at}/LayerNorm_0": block.norm1, f"{at}/LayerNorm_2": block.norm2}
        dense |= {f"{at}/MlpBlock_3/Dense_0": block.mlp.fc1}
        dense |= {f"{at}/MlpBlock_3/Dense_1": block.mlp.fc2}
        attention = f"{at}/MultiHeadDotProductAttention_1"
        parts = zip(block.attn.qkv.weight.chunk(3), block.attn.qkv.bias.chunk(3), strict=True)
        for part, (weight, bias) in zip(("query", "key", "value"), parts, strict=True):
            arrays[f"{attention}/{part}/kernel"] = weight.T.unflatten(1, (heads, -1))
            arrays[f"{attention}/{part}/bias"] = bias.unflatten(0, (heads, -1))
        arrays[f"{attention}/out/kernel"] = block.attn.proj.weight.T.unflatten(0, (heads, -1))
        arrays[f"{attention}/out/bias"] = block.attn.proj.bias
    for name, norm in norms.items():
        arrays |= {f"{name}/scale": norm.weight, f"{name}/bias": norm.bias}
    for name, layer in dense.items():
        arrays |= {f"{name}/kernel": layer.weight.T, f"{name}/bias": layer.bias}
    return arrays


def optimiser(rate: Any, tensors: Tensors) -> dict[str, Any]:
    return {"state": {0: {"step": 9, "exp_avg": tensors}}, "param_groups": [{"lr": rate}]}


def ibot_training(model: VisionTransformer) -> dict[str, Any]:
    """`main_ibot.py`: student and teacher, optimiser with NumPy rates, the command line."""
    zero = torch.zeros(8, 1)
    names = ("mlp.0.weight", "mlp.0.bias", "last_layer.weight_g", "last_layer.weight_v")
    head = {f"head.{name}": zero for name in names}
    student = under("backbone.", {**model.state_dict(), "masked_embed": zero}) | head
    return {
        "student": under("module.", {k: t * 2 for k, t in student.items()}),
        "teacher": under("backbone.", model.state_dict()) | head,
        "optimizer": optimiser(np.float64(1e-4), student),
        "epoch": 80,
        "args": argparse.Namespace(arch="vit_base", pred_ratio=[0.0, 0.3], load_from=None),
        "ibot_loss": {"center": torch.zeros(1, 8), "center2": torch.zeros(1, 1, 8)},
        "fp16_scaler": {"scale": 65536.0, "_growth_tracker": 3},
    }


def moco_training(model: VisionTransformer) -> dict[str, Any]:
    """`main_moco.py`: two encoders with projectors, a predictor, the optimiser."""
    names = ("0.weight", "1.running_mean", "1.num_batches_tracked", "7.running_var")
    head = {name: torch.zeros(8) for name in names}
    encoder = model.state_dict() | under("head.", head)
    momentum = {k: t * 2 for k, t in encoder.items()}
    state = under("base_encoder.", encoder) | under("momentum_encoder.", momentum)
    return {
        "epoch": 300,
        "arch": "vit_base",
        "state_dict": under("module.", state | under("predictor.", head)),
        "optimizer": optimiser(1e-4, encoder),
        "scaler": {"scale": 65536.0, "growth_factor": 2.0},
    }


CONTENTS: dict[str, Callable[[VisionTransformer], Any]] = {
    "google.npz": google,
    "ibot-training.pth": ibot_training,
    "ibot-backbone.pth": lambda model: {"state_dict": model.state_dict()},
    "dino.pth": lambda model: model.state_dict(),
    "moco-training.pth.tar": moco_training,
    "moco-of-hide.pth": lambda model: {"model": model.state_dict()},
    "timm.safetensors": lambda model: {**model.state_dict(), "head.weight": torch.zeros(9, 64)},
}
FORMAT_OF = {  # what each published checkpoint is
    "sup21k": "google.npz",
    "ibot21k": "ibot-training.pth",
    "ibot1k": "ibot-backbone.pth",
    "dino1k": "dino.pth",
    "moco1k": "moco-training.pth.tar",
}


def write(path: Path, content: Any) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **{k: t.detach().numpy() for k, t in content.items()})
    elif path.suffix == ".safetensors":
        save_file({k: t.contiguous() for k, t in content.items()}, path)
    else:
        torch.save(content, path)
    return path


def table_of(content: Any) -> Tensors:
    """The tensors among which the backbone is."""
    return next((content[k] for k in ("teacher", "state_dict", "model") if k in content), content)


@pytest.mark.parametrize("file", CONTENTS)
@torch.no_grad()
def test_every_published_layout_gives_the_same_backbone(file: str, tmp_path: Path) -> None:
    model = vit()
    path = write(tmp_path / file, CONTENTS[file](model))
    loaded = load_backbone(f"{SMALL}@{path}")
    images = torch.randn(2, 3, 160, 160)
    torch.testing.assert_close(loaded.model(images), model.forward_features(images)[:, 0])
    plain = write(tmp_path / "plain.pth", model.state_dict())
    assert loaded.weights_sha256 == load_backbone(f"{SMALL}@{plain}").weights_sha256
    known = file.startswith(("ibot-training", "moco-training"))
    assert loaded.preprocessing.mean == (IMAGENET if known else (0.5,) * 3)


@pytest.mark.parametrize("prefix", ["", "opt/target/", "params/"])
def test_google_weights_equal_what_timms_own_loader_makes_of_them(
    prefix: str, tmp_path: Path
) -> None:
    arrays = under(prefix, google(vit()))
    if prefix == "params/":  # the younger program counts the parts of a block otherwise
        younger = {"MlpBlock_3": "MlpBlock_0", "LayerNorm_2": "LayerNorm_1", "tion_1": "tion_0"}
        for old, new in {**younger, "Transformer/posembed_input/": ""}.items():
            arrays = {name.replace(old, new): array for name, array in arrays.items()}
    path = write(tmp_path / "vit.npz", arrays)
    theirs = timm.create_model(SMALL, num_classes=0)
    theirs.load_pretrained(str(path))
    ours = load_backbone(f"{SMALL}@{path}").model.vit.state_dict()
    assert ours.keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours[name], tensor), name


LACKING = {  # one tensor of the backbone in each layout, and what timm calls it
    "google.npz": ("Transformer/encoderblock_3/MlpBlock_3/Dense_0/bias", "blocks.3.mlp.fc1.bias"),
    "ibot-training.pth": ("backbone.norm.weight", "norm.weight"),
    "ibot-backbone.pth": ("cls_token", "cls_token"),
    "dino.pth": ("blocks.5.attn.qkv.bias", "blocks.5.attn.qkv.bias"),
    "moco-training.pth.tar": ("module.base_encoder.pos_embed", "pos_embed"),
    "moco-of-hide.pth": ("norm.bias", "norm.bias"),
    "timm.safetensors": ("patch_embed.proj.bias", "patch_embed.proj.bias"),
}


@pytest.mark.parametrize("file", CONTENTS)
def test_missing_and_unexpected_tensors_are_listed(file: str, tmp_path: Path) -> None:
    content = CONTENTS[file](vit())
    stored, missing = LACKING[file]
    del table_of(content)[stored]
    odd = "module.odd" if "moco-training" in file else "odd"
    table_of(content)[odd] = torch.zeros(3)
    path = write(tmp_path / file, content)
    message = rf"1 tensors missing \({missing}\), 1 unexpected \(odd\)"
    with pytest.raises(UserError, match=message):
        load_backbone(f"{SMALL}@{path}")


def test_a_lone_part_of_an_attention_block_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    arrays = google(vit())
    del arrays["Transformer/encoderblock_0/MultiHeadDotProductAttention_1/key/kernel"]
    with pytest.raises(UserError, match=r"blocks\.0\.attn\.qkv\.weight.*attn\.query\.weight"):
        load_backbone(f"{SMALL}@{write(tmp_path / 'vit.npz', arrays)}")


def test_mask_tokens_of_training_are_left_out(tmp_path: Path) -> None:
    state = {"masked_embed": torch.zeros(1, 64), "mask_token": torch.zeros(1, 64)}
    path = write(tmp_path / "student.pth", {"state_dict": {**vit().state_dict(), **state}})
    load_backbone(f"{SMALL}@{path}")


def test_the_architecture_is_told_from_the_tensors_of_any_layout(tmp_path: Path) -> None:
    model = vit("vit_tiny_patch16_224")
    for file in ("google.npz", "moco-training.pth.tar"):
        path = write(tmp_path / file, CONTENTS[file](model))
        assert load_backbone(str(path), image_size=32).model.dim == 192


def test_numbers_pickled_by_an_older_numpy_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "new.pth", ibot_training(vit()))
    with zipfile.ZipFile(path) as new, zipfile.ZipFile(tmp_path / "old.pth", "w") as old:
        for item in new.infolist():
            content = new.read(item)
            if item.filename.endswith("data.pkl"):
                assert b"numpy._core.multiarray" in content
                content = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
            old.writestr(item.filename, content)
    load_backbone(f"{SMALL}@{tmp_path / 'old.pth'}")


class Custom:
    """Something that only its own program can unpickle."""


def test_a_checkpoint_with_other_objects_says_how_to_convert_it(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.pth", {"model": vit().state_dict(), "config": Custom()})
    with pytest.raises(UserError, match=r"Custom`: pickled code, .*save_file.*docs/backbones"):
        load_backbone(f"{SMALL}@{path}")


# Preprocessing. ----------------------------------------------------------------------------


@pytest.fixture
def small_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue's entries with a small architecture."""
    for name, entry in CATALOGUE.items():
        monkeypatch.setitem(CATALOGUE, name, replace(entry, architecture=SMALL))


@pytest.mark.usefixtures("small_catalogue")
@pytest.mark.parametrize("name", CATALOGUE)
def test_a_name_brings_the_statistics_of_its_weights(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / FORMAT_OF[name], CONTENTS[FORMAT_OF[name]](vit()))
    expected = (0.5,) * 3 if name == "sup21k" else IMAGENET
    preprocessing = load_backbone(f"{name}@{path}").preprocessing
    assert preprocessing.mean == expected
    assert preprocessing.interpolation == "bicubic"


def test_the_users_statistics_replace_those_of_the_transform_and_of_the_weights() -> None:
    own = load_backbone("nano").preprocessing

    def found(**options: Any) -> Any:
        return make_views(RunOptions(**options), "digits", own, True)

    assert found().preprocessing == found(normalize="weights").preprocessing == own
    assert found(normalize="none").preprocessing == replace(own, mean=(0.0,) * 3, std=(1.0,) * 3)
    assert found(transform="hide").preprocessing.std == (1.0,) * 3
    cifar = found(transform="hide", normalize="cifar").preprocessing
    assert cifar.mean == (0.5071, 0.4867, 0.4408)
    assert cifar.std == (0.2675, 0.2565, 0.2761)


def test_the_statistics_are_part_of_the_protocol(tiny_npz: Path) -> None:
    options = {"tasks": 3, "normalize": "none"}
    planned = benchmark.make_plan(method="gaussian-head", stream=f"npz:{tiny_npz}", options=options)
    transform = benchmark.prepare(planned).protocol["transform"]
    assert (transform["mean"], transform["std"]) == ([0.0] * 3, [1.0] * 3)


# Downloads. --------------------------------------------------------------------------------


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web_server() as server:
        yield server


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the folder of weights in it."""
    monkeypatch.setenv("HASHPROMPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HASHPROMPT_WEIGHTS", raising=False)
    return tmp_path / "cache" / "weights"


def publish(site: WebServer, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Serve a small file as a checkpoint of the catalogue; the same file on disk."""
    entry = replace(CATALOGUE[name], architecture=SMALL, url=f"{site.url}/{name}")
    monkeypatch.setitem(CATALOGUE, name, entry)
    path = write(folder / FORMAT_OF[name], CONTENTS[FORMAT_OF[name]](vit()))
    site.files[f"/{name}"] = path.read_bytes()
    return path


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_name_is_downloaded_and_converted_when_it_is_used(
    name: str, site: WebServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = publish(site, name, tmp_path, monkeypatch)
    site.cuts = [5000]
    loaded = load_backbone(name)
    path = cache / f"{name}{CATALOGUE[name].suffix}"
    assert path.read_bytes() == published.read_bytes()
    assert (cache / f"{path.name}.sha256").read_text() == f"{file_hash(path)}  {path.name}\n"
    site.requests.clear()
    assert load_backbone(name).weights_sha256 == loaded.weights_sha256
    assert site.requests == []


def test_a_file_that_changed_since_its_first_use_is_refused(
    site: WebServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(site, "dino1k", tmp_path, monkeypatch)
    load_backbone("dino1k")
    changed = {name: tensor + 1 for name, tensor in vit().state_dict().items()}
    write(cache / "dino1k.pth", changed)
    with pytest.raises(UserError, match=r"not the file that was first used.*dino1k\.pth\.sha256"):
        load_backbone("dino1k")
    site.files["/dino1k"] = (cache / "dino1k.pth").read_bytes()  # the address serves another one
    (cache / "dino1k.pth").unlink()
    with pytest.raises(UserError, match="not the file that was first used"):
        load_backbone("dino1k")


def test_a_file_that_cannot_be_read_leaves_no_checksum(
    site: WebServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(site, "dino1k", tmp_path, monkeypatch)
    site.files["/dino1k"] = b"<html>Please log in</html>"
    with pytest.raises(UserError, match=r"dino1k\.pth cannot be read as weights"):
        load_backbone("dino1k")
    assert not list(cache.glob("*.sha256"))


@pytest.mark.usefixtures("small_catalogue")
@pytest.mark.parametrize("where", ["variable", "cache"])
def test_a_file_that_was_brought_is_used_without_a_connection(
    where: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "brought" if where == "variable" else cache
    folder.mkdir(parents=True)
    if where == "variable":
        monkeypatch.setenv("HASHPROMPT_WEIGHTS", str(folder))
    monkeypatch.setitem(CATALOGUE, "moco1k", replace(CATALOGUE["moco1k"], url="http://nowhere"))
    path = write(folder / "moco1k.pth", CONTENTS["moco-of-hide.pth"](vit()))  # another format
    assert find_file("moco1k") == path
    assert load_backbone("moco1k").preprocessing.mean == IMAGENET


def ways_to_bring(name: str, file: str, cache: Path) -> str:
    """The end of the message for weights that cannot be had, as a pattern."""
    return rf"`{name}@FILE`.* save it as {file} .*HASHPROMPT_WEIGHTS names, or in {cache}\."


def test_without_a_connection_the_message_says_how_to_bring_the_file(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = replace(CATALOGUE["ibot1k"], url="http://127.0.0.1:9/x.pth")
    monkeypatch.setitem(CATALOGUE, "ibot1k", closed)
    message = r"http://127\.0\.0\.1:9/x\.pth: the connection failed .*"
    with pytest.raises(UserError, match=message + ways_to_bring("ibot1k", r"ibot1k\.pth", cache)):
        obtain("ibot1k")


def test_an_address_that_is_gone_is_asked_once(
    site: WebServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(site, "moco1k", tmp_path, monkeypatch)
    site.files.clear()
    ways = ways_to_bring("moco1k", r"moco1k\.pth\.tar", cache)
    with pytest.raises(UserError, match="the server answers 404 Not Found.*" + ways):
        obtain("moco1k")
    assert len(site.requests) == 1
    assert not [path for path in cache.iterdir() if path.suffix != ".lock"]


# timm's hub. -------------------------------------------------------------------------------

TAGGED = f"{SMALL}.r160_in1k"


@pytest.fixture
def hub(site: WebServer, cache: Path, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache.parent / "hub"))
    return site


def test_a_timm_name_is_downloaded_from_its_hub_once(hub: WebServer) -> None:
    model = vit()
    hub.files[f"/timm/{TAGGED}/resolve/main/model.safetensors"] = save(model.state_dict())
    loaded = load_backbone(TAGGED)
    assert torch.equal(loaded.model.vit.pos_embed, model.pos_embed)
    hub.requests.clear()
    assert load_backbone(TAGGED).weights_sha256 == loaded.weights_sha256
    assert hub.requests == []


def test_a_hub_that_does_not_answer_is_asked_once(
    hub: WebServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = rf"{TAGGED}\.safetensors"
    ways = ways_to_bring(TAGGED, file, cache)
    with pytest.raises(UserError, match="404.*" + ways):
        load_backbone(TAGGED)
    assert len(hub.requests) == 1
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody there
    with pytest.raises(UserError, match=ways):
        load_backbone(TAGGED)


def test_timm_weights_that_were_brought_need_no_hub(hub: WebServer, cache: Path) -> None:
    cache.mkdir(parents=True)
    write(cache / f"{TAGGED}.safetensors", vit().state_dict())
    load_backbone(TAGGED)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("vit_base_patch16_224", r"needs its tag.*`vit_base_patch16_224\.augreg_in21k`"),
        ("vit_base_patch16_224_in21k", "Unknown backbone.* Did you mean `vit_base_patch16_224`"),
    ],
)
def test_a_timm_name_without_its_tag_is_refused(name: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        load_backbone(name)


def test_the_list_tells_what_is_here_and_what_a_download_costs(
    cli: Any, hub: WebServer, cache: Path
) -> None:
    cache.mkdir(parents=True)
    path = write(cache / "ibot1k.pth", {"big": torch.zeros(500_000)})
    hub.files[f"/timm/{TAGGED}/resolve/main/model.safetensors"] = save(vit().state_dict())
    load_backbone(TAGGED)
    hub.requests.clear()
    said = " ".join(cli("backbones").out.split())
    assert "about 413 MB to download from storage.googleapis.com" in said
    assert "iBOT on ImageNet-1k, teacher · here, 2 MB" in said
    assert path.name in said.replace(" ", "")  # long paths are wrapped
    assert f"{TAGGED} timm" in said
    assert hub.requests == []


def test_an_absurd_image_size_is_refused_in_words() -> None:
    with pytest.raises(UserError, match="Image size 4000000 is too large; at most 1024 pixels"):
        load_backbone("nano", image_size=4_000_000)
