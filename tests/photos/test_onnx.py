"""Exported to ONNX, a classifier says the same, without torch; what cannot be is refused."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import NAMES, stripes
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer

from hashprompt import ContinualClassifier, OnnxClassifier
from hashprompt.errors import UserError
from hashprompt.photos.onnx import export as onnx_export
from hashprompt.storage.json_files import json_sha256

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package, reason="needs hashprompt[onnx]")

# Two small blocks: an export takes a second for each block of the ViT.
SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 4}
QUICK = {"epochs": 1, "batch_size": 8, "layers": [1, 2], "rank": 8}
EXACT = 1e-4
SLOW = pytest.mark.slow  # an export takes seconds


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A weights file in our own format."""
    torch.manual_seed(0)
    model = VisionTransformer(**SIZES, num_classes=0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    path = tmp_path_factory.mktemp("vit") / "small.safetensors"
    told = {"architecture": SIZES, "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]}
    save_file(model.state_dict(), path, {k: json.dumps(v) for k, v in told.items()})
    return str(path)


@pytest.fixture(scope="session")
def teach(vit: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ContinualClassifier]:
    """`teach([0, 1], [1, 2])`: a classifier after learns of these classes of stripes."""

    def teach(
        *sessions: list[int], each: int = 10, fits: int = 0, **options: Any
    ) -> ContinualClassifier:
        folder = tmp_path_factory.mktemp("taught") / "zoo"
        zoo = ContinualClassifier(folder, backbone=vit, **{**QUICK, **options})
        rng = np.random.default_rng(len(sessions))
        for number, classes in enumerate(sessions):
            images = np.concatenate([stripes(c, each, rng) for c in classes])
            labels = [NAMES[c] for c in classes for _ in range(each)]
            effort = "instant" if number < fits else "quick"
            zoo.learn(images, labels=labels, effort=effort, report=False, quiet=True)
        return zoo

    return teach


@pytest.fixture(scope="session")
def zoo(teach: Callable[..., ContinualClassifier]) -> ContinualClassifier:
    """Two learns, one class in both."""
    return teach([0, 1, 2], [3, 0])


@pytest.fixture(scope="session")
def exported(zoo: ContinualClassifier) -> Path:
    folder = Path(str(zoo.folder)).with_name("exported")
    return zoo.export(folder, format="onnx")


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    """To be damaged."""
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def pictures(count: int) -> list[np.ndarray]:
    """Stripes, noise and halves of both, of sizes of their own."""
    rng = np.random.default_rng(count)
    found = []
    for number in range(count):
        noise = rng.integers(0, 256, (32 + number % 5, 32 + number % 3, 3), dtype=np.uint8)
        if number % 3:
            noise[:32, : 32 // (number % 3)] = stripes(number % 6, 1, rng)[0][
                :, : 32 // (number % 3)
            ]
        found.append(noise)
    return found


def assert_same(zoo: ContinualClassifier, model: OnnxClassifier, count: int) -> None:
    images = pictures(count)
    said = zoo.predict(images, batch_size=count)
    for found, expected in zip(model.predict(images, batch_size=count), said, strict=True):
        assert found.label == expected.label
        assert found.is_unknown == expected.is_unknown
        assert found.unknown == pytest.approx(expected.unknown, abs=EXACT)
        assert found.probabilities == pytest.approx(expected.probabilities, abs=EXACT)
        for near, other in zip(found.closest, expected.closest, strict=True):
            assert near == {**other, "distance": pytest.approx(other["distance"], abs=2e-3)}


@pytest.mark.parametrize("count", [1, 7, 64])
def test_it_says_what_the_classifier_says(
    zoo: ContinualClassifier, exported: Path, count: int
) -> None:
    assert_same(zoo, OnnxClassifier(exported), count)


def test_the_pictures_try_something(zoo: ContinualClassifier) -> None:
    """Else any model would pass: several labels, sure and unsure, known and unknown."""
    said = zoo.predict(pictures(64))
    assert len({answer.label for answer in said}) >= 3
    assert len({answer.is_unknown for answer in said}) == 2
    assert min(answer.confidence for answer in said) < 0.9


@pytest.mark.parametrize(
    ("sessions", "options"),
    [
        ([[0]], {}),
        pytest.param([[0], [1, 2]], {"each": 2}, marks=SLOW),  # too few to hold some out
        ([[0, 1], [1, 2]], {"statistics": "covariance", "shrinkage": 0.9, "center": 0.875}),
        ([[0, 1], [2, 3]], {"fits": 1, "statistics": "variance"}),
        pytest.param([[0, 1], [2]], {"fits": 2, "statistics": "pooled"}, marks=SLOW),
    ],
    ids=["one class", "no held-out photos", "own covariances", "a fit and training", "fits only"],
)
def test_every_kind_of_classifier_can_be_exported(
    teach: Callable[..., ContinualClassifier],
    sessions: list[list[int]],
    options: dict[str, Any],
    tmp_path: Path,
) -> None:
    zoo = teach(*sessions, **options)
    assert_same(zoo, OnnxClassifier(zoo.export(tmp_path / "out", format="onnx")), 7)


def test_the_graph_tells_the_task_and_describes_itself(exported: Path) -> None:
    import onnx
    import onnxruntime

    model = onnx.load(exported / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    beside = json.loads((exported / "model.json").read_text())
    inside = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(inside["classes"]) == beside["classes"] == list(NAMES[:4])
    assert json.loads(inside["preprocessing"]) == beside["preprocessing"]
    assert beside["preprocessing"]["mean"] == [0.4, 0.5, 0.6]
    assert [each.version for each in model.opset_import] == [beside["opset"]]
    session = onnxruntime.InferenceSession(str(exported / "model.onnx"))
    pixels = np.random.default_rng(0).random((5, 3, 32, 32), dtype=np.float32)
    output = dict(
        zip(
            (o.name for o in session.get_outputs()),
            session.run(None, {"pixels": pixels}),
            strict=True,
        )
    )
    assert output["probabilities"].sum(1) == pytest.approx(1, abs=1e-5)
    assert set(output["task"].tolist()) <= {0, 1}
    assert session.get_inputs()[0].shape[1:] == [3, 32, 32]


def test_int8_is_smaller_and_says_what_it_costs(
    zoo: ContinualClassifier,
    exported: Path,
    tmp_path: Path,
    cli: Any,
    spring: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import onnx

    graph = onnx.load(exported / "model.onnx")  # instead of making it again
    monkeypatch.setattr(onnx_export, "onnx_model", lambda *_: graph)
    done = cli(
        "export", zoo.folder, tmp_path / "int8", "--format", "onnx", "--int8", "--test", spring
    )
    assert done.code == 0, done.err
    told = json.loads((tmp_path / "int8" / "model.json").read_text())
    assert told["weights"] == "int8"
    accuracy = told["accuracy"]
    assert (accuracy["source"], accuracy["photos"]) == ("spring", 30)
    paths = sorted(path for path in spring.rglob("*.png"))
    for name, asked in (("before", zoo), ("after", OnnxClassifier(tmp_path / "int8"))):
        right = [
            str(a.label) == p.parent.name for a, p in zip(asked.predict(paths), paths, strict=True)
        ]
        assert accuracy[name] == sum(right)
    assert "Same answer for" in done.out
    sizes = [(folder / "model.onnx").stat().st_size for folder in (exported, tmp_path / "int8")]
    matrices = SIZES["depth"] * 12 * SIZES["embed_dim"] ** 2
    assert sizes[0] - sizes[1] > 0.9 * 3 * matrices


# Asking without torch. ---------------------------------------------------------------------


def test_predict_needs_no_torch(exported: Path, spring: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from hashprompt.cli.app import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        "heavy = ('torch', 'timm', 'torchvision', 'scipy', 'sklearn', 'matplotlib', 'onnx')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    for form in (["--json"], ["--csv", str(tmp_path / "a.csv")], []):
        done = subprocess.run(
            [sys.executable, "-c", code, "predict", str(exported), str(spring), *form],
            *(),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert (done.returncode, done.stderr.strip()) == (0, "[]")
        assert "ash" in (tmp_path / "a.csv").read_text() if "--csv" in form else done.stdout


# What is wrong. ----------------------------------------------------------------------------


def test_a_folder_that_is_not_whole_is_refused(copy: Path, cli: Any, spring: Path) -> None:
    model, description = copy / "model.onnx", copy / "model.json"
    whole, told = model.read_bytes(), description.read_text()
    for content in (whole[:-1], whole[:100] + b"x" + whole[101:]):
        model.write_bytes(content)
        assert "not the model that model.json describes" in cli("predict", copy, spring).err
    model.unlink()
    assert "model.onnx is missing" in cli("predict", copy, spring).err
    model.write_bytes(whole)
    description.unlink()
    assert "model.json is missing" in cli("predict", copy, spring).err
    description.write_text(told.replace("ash", "oak"))
    assert "model.json is damaged" in cli("predict", copy, spring).err
    description.write_text(told)
    assert cli("predict", copy, spring).code == 0


def sealed(description: Path, **changes: Any) -> None:
    """Change a description as its maker could."""
    told = {**json.loads(description.read_text()), **changes}
    del told["sha256"]
    description.write_text(json.dumps({**told, "sha256": json_sha256(told)}))


def test_a_description_of_another_model_is_refused(copy: Path, spring: Path) -> None:
    sealed(copy / "model.json", classes=["one", "two", "three", "four", "five"])
    with pytest.raises(UserError, match="outputs do not fit its description"):
        OnnxClassifier(copy).predict(spring)
    sealed(copy / "model.json", cells=[[7, 0]])
    with pytest.raises(UserError, match="`cells` has a session or a class that is not there"):
        OnnxClassifier(copy)


def test_a_model_that_is_none_is_refused(copy: Path) -> None:
    import hashlib

    (copy / "model.onnx").write_bytes(b"nonsense")
    sealed(copy / "model.json", model_sha256=hashlib.sha256(b"nonsense").hexdigest())
    with pytest.raises(UserError, match=r"onnxruntime .* cannot load"):
        OnnxClassifier(copy)


def test_what_is_missing_is_named(
    exported: Path, zoo: ContinualClassifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"needs onnxruntime: pip install 'hashprompt"):
        OnnxClassifier(exported)
    with pytest.raises(UserError, match=r"needs `onnxruntime`: pip install 'hashprompt\[onnx\]'"):
        zoo.export(tmp_path / "out", format="onnx")


def test_options_that_do_not_belong_together(
    exported: Path, zoo: ContinualClassifier, cli: Any
) -> None:
    assert "Leave out --version" in cli("predict", exported, "a.png", "--version", 1).err
    assert "belong to format=onnx" in cli("export", zoo.folder, "new", "--int8").err
    done = cli("export", zoo.folder, "new", "--format", "onnx", "--no-backbone")
    assert "Omit --no-backbone" in done.err
    for command in (("history",), ("learn", "photos"), ("export", "new")):
        done = cli(command[0], exported, *command[1:])
        assert (done.code, "was exported to ONNX" in done.err) == (1, True)


def test_a_folder_with_something_in_it_is_not_written_to(
    zoo: ContinualClassifier, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        zoo.export(tmp_path, format="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_what_onnx_cannot_express_is_refused(
    zoo: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: Any, **__: Any) -> None:
        raise RuntimeError("in the exporter") from ValueError("no such operator")

    with monkeypatch.context() as patch:
        patch.setattr(torch.onnx, "export", unsupported)
        with pytest.raises(UserError, match=r"cannot be expressed in ONNX .*no such operator"):
            zoo.export(tmp_path / "out", format="onnx")
    monkeypatch.setattr(onnx_export, "MAX_BYTES", 10**5)
    with pytest.raises(UserError, match="GB, this one needs"):
        zoo.export(tmp_path / "out", format="onnx")
