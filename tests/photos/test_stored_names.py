"""Names that a stored folder holds, which may be a stranger's: nothing is downloaded or run."""

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from hashprompt import ContinualClassifier
from hashprompt.backbone.names import nano_file
from hashprompt.backbone.weights import load_backbone
from hashprompt.errors import UserError
from hashprompt.runs import benchmark
from hashprompt.storage.files import as_given
from hashprompt.storage.json_files import write_json

Make = Callable[..., ContinualClassifier]
CATALOGUED, TIMM = "dino1k", "vit_small_patch16_224.augreg_in21k"
ELSEWHERE = [
    "hf_hub:evil/repo",
    "hf-hub:evil/repo.safetensors",
    "local-dir:/tmp/evil.x",
    "https://evil.example/w.safetensors",
    "vit_tiny_patch16_224.nobody",
    "hf_hub:evil/repo@https://evil.example/w.safetensors",
    "../../etc/passwd.pth",
]


@pytest.fixture
def connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was connected to; nothing is here, and nobody answers."""
    asked: list[Any] = []

    def refuse(*address: Any, **options: Any) -> Any:
        asked.append(address)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("HASHPROMPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HASHPROMPT_WEIGHTS", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return asked


def change(file: Path, **changes: Any) -> None:
    """Change a JSON file as who made the folder can: its checksum is right."""
    stored = json.loads(file.read_text())
    stored.pop("sha256", None)
    write_json(as_given(file), {**stored, **changes})


@pytest.fixture
def foreign_run(undisturbed: benchmark.Result, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(undisturbed.folder, folder)
    return folder


@pytest.fixture
def foreign(taught: ContinualClassifier, tmp_path: Path) -> Path:
    folder = tmp_path / "foreign"
    shutil.copytree(taught.store.folder, folder)
    return folder


def name_backbone(folder: Path, name: str) -> None:
    header = json.loads((folder / "classifier.json").read_text())
    change(folder / "classifier.json", backbone={**header["backbone"], "name": name})


# Runs. -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [CATALOGUED, TIMM])
def test_a_run_that_names_a_backbone_downloads_nothing(
    name: str, foreign_run: Path, connections: list[Any], cli: Any
) -> None:
    change(foreign_run / "config.json", backbone=name)
    expected = rf"`{name}` is not on this machine.* from https.*`--download`"
    with pytest.raises(UserError, match=expected):
        benchmark.evaluate(foreign_run, quiet=True)
    (foreign_run / "result.json").unlink()
    with pytest.raises(UserError, match=expected):
        benchmark.resume(foreign_run, quiet=True)
    assert "--download" in cli("resume", foreign_run).said
    assert connections == []
    with pytest.raises(UserError, match="Could not get the weights"):
        benchmark.resume(foreign_run, quiet=True, download=True)
    assert connections
    assert "Could not get the weights" in cli("resume", foreign_run, "--download").said


def test_a_run_that_names_a_set_of_the_hub_downloads_nothing(
    foreign_run: Path, connections: list[Any]
) -> None:
    change(foreign_run / "config.json", stream="hf:evil/set")
    (foreign_run / "result.json").unlink()
    with pytest.raises(UserError, match=r"`hf:evil/set`.*--download"):
        benchmark.resume(foreign_run, quiet=True)
    assert connections == []


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_run_that_names_an_address_is_refused(
    name: str, foreign_run: Path, connections: list[Any]
) -> None:
    change(foreign_run / "config.json", backbone=name)
    (foreign_run / "result.json").unlink()
    for download in (False, True):
        with pytest.raises(UserError):
            benchmark.resume(foreign_run, quiet=True, download=download)
    assert connections == []


# Classifiers. ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [CATALOGUED, TIMM])
def test_a_classifier_that_names_a_backbone_downloads_nothing(
    name: str, foreign: Path, spring: Path, connections: list[Any], tmp_path: Path, cli: Any
) -> None:
    name_backbone(foreign, name)
    photo = spring / "ash" / "0-0.png"
    acts: list[Callable[[ContinualClassifier], Any]] = [
        lambda classifier: classifier.predict(photo),
        lambda classifier: classifier.learn(spring, report=False, quiet=True),
        lambda classifier: classifier.plan(spring),
        lambda classifier: classifier.export(tmp_path / "out"),
    ]
    for act in acts:
        with pytest.raises(UserError, match=rf"`{name}` is not on this machine.*--backbone {name}"):
            act(ContinualClassifier.load(foreign))
    assert f"--backbone {name}" in cli("predict", foreign, photo).said
    assert connections == []
    with pytest.raises(UserError, match="Could not get the weights"):
        ContinualClassifier.load(foreign, backbone=name).predict(photo)
    assert connections


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_classifier_that_names_an_address_is_refused(
    name: str, foreign: Path, spring: Path, connections: list[Any]
) -> None:
    name_backbone(foreign, name)
    with pytest.raises(UserError):
        ContinualClassifier.load(foreign).predict(spring / "ash" / "0-0.png")
    with pytest.raises(UserError):
        ContinualClassifier.load(foreign, backbone=name).predict(spring / "ash" / "0-0.png")
    assert connections == []


def test_an_unfinished_first_learn_downloads_nothing(
    make: Make, spring: Path, connections: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hashprompt.photos import session

    def stop(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        make().learn(spring, report=False, quiet=True)
    folder = make().store.folder
    job = json.loads((folder / "learning" / "session.json").read_text())
    header = {**job["header"], "backbone": {**job["header"]["backbone"], "name": CATALOGUED}}
    change(folder / "learning" / "session.json", header=header)
    with pytest.raises(UserError, match=rf"`{CATALOGUED}` is not on this machine"):
        ContinualClassifier(folder).learn(resume=True, report=False, quiet=True)
    assert connections == []


# Methods. ----------------------------------------------------------------------------------


def test_a_stored_method_never_runs_a_file(foreign_run: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = tmp_path / "evil.py"
    code.write_text(f"open({str(ran)!r}, 'w').close()")
    (foreign_run / "result.json").unlink()
    for name in (str(code), "evil.py", "evil", "os:system", f"file://{code}", "../evil.py"):
        change(foreign_run / "config.json", method=name)
        with pytest.raises(UserError, match="Unknown method"):
            benchmark.resume(foreign_run, quiet=True)
    assert not ran.exists()


# Preprocessing. ----------------------------------------------------------------------------


def altered(path: Path) -> Path:
    """nano's weights under another mean."""
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 6, "num_heads": 4}
    told = {"architecture": sizes, "mean": [0.1, 0.2, 0.3], "std": [0.5] * 3}
    save_file(load_file(nano_file()), path, {k: json.dumps(v) for k, v in told.items()})
    assert load_backbone(str(path)).weights_sha256 == load_backbone("nano").weights_sha256
    return path


def test_a_classifier_notices_altered_preprocessing_of_its_backbone(
    make: Make, spring: Path, tmp_path: Path
) -> None:
    photo = spring / "ash" / "0-0.png"
    weights = tmp_path / "mine.safetensors"
    shutil.copy(nano_file(), weights)
    classifier = make(backbone=str(weights))
    classifier.learn(spring, report=False, quiet=True)
    exported = classifier.export(tmp_path / "copy")
    expected = classifier.predict(photo).probabilities
    assert ContinualClassifier.load(exported).predict(photo).probabilities == expected
    altered(exported / "backbone.safetensors")
    with pytest.raises(UserError, match=r"other preprocessing: .*0\.1, 0\.2, 0\.3"):
        ContinualClassifier.load(exported).predict(photo)


def test_a_run_notices_altered_preprocessing_of_its_backbone(
    foreign_run: Path, tmp_path: Path
) -> None:
    change(foreign_run / "config.json", backbone=str(altered(tmp_path / "w.safetensors")))
    with pytest.raises(UserError, match="transform was"):
        benchmark.evaluate(foreign_run, quiet=True)


def test_cached_features_of_other_preprocessing_are_not_found(
    tiny_npz: Path, tmp_path: Path
) -> None:
    def key(backbone: str) -> Any:
        planned = benchmark.make_plan(
            "gaussian-head", f"npz:{tiny_npz}", backbone, options={"tasks": 3}
        )
        return vars(benchmark.prepare(planned).trainer(tmp_path).passes._cache)

    assert key("nano") == key(str(nano_file()))
    assert key("nano") != key(str(altered(tmp_path / "w.safetensors")))
