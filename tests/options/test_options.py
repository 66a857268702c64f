"""Options: what can be set is checked in one place, and every refusal can be read."""

import resource
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from hashprompt.backbone.weights import load_backbone
from hashprompt.engine.devices import launch
from hashprompt.errors import UserError, shortened
from hashprompt.methods import METHODS
from hashprompt.methods.config import MethodConfig
from hashprompt.methods.hash.config import HashConfig
from hashprompt.methods.ovor.config import OvorConfig
from hashprompt.methods.ovor.method import virtual_outliers
from hashprompt.methods.registry import build_method, find_method, register
from hashprompt.options import Options, build, split_options, unknown
from hashprompt.options.run import RunOptions
from hashprompt.options.stream import StreamOptions
from hashprompt.parts.gaussians import ClassGaussians, GaussianSampler
from hashprompt.runs.benchmark import run
from hashprompt.runs.plan import make_plan

GROUPS = {**{name: method.config for name, method in METHODS.items()}}
GROUPS |= {"stream": StreamOptions, "run": RunOptions}


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that a test registers are forgotten after it."""
    monkeypatch.setattr("hashprompt.methods.registry.METHODS", dict(METHODS))


def options_of(name: str, **fields: Any) -> type[MethodConfig]:
    """Options of a class of this name, as a cell of a notebook would define them."""
    annotations = {option: int for option in fields if option != "__doc__"}
    of_class = {"__annotations__": annotations, "__module__": __name__, **fields}
    return type(f"{name}Config", (MethodConfig,), of_class)


# Registering. ------------------------------------------------------------------------------


def test_a_name_that_exists_is_not_registered_again() -> None:
    with pytest.raises(UserError, match="`hash` is the name of a method already"):
        register("hash")(options_of("Mine"))
    register("mine")(options_of("One"))
    with pytest.raises(UserError, match="`mine` is the name of a method already"):
        register("mine")(options_of("Other"))


def test_options_that_are_defined_again_take_the_place_of_the_old_ones() -> None:
    """A notebook's cell, run twice."""
    register("mine")(options_of("Mine"))
    again = register("mine")(options_of("Mine"))
    assert find_method("mine").config is again


def test_title_and_summary_are_those_of_the_docstring() -> None:
    found = register("mine", paper="ours")(
        options_of("Mine", __doc__="My own: one\n    line.\n\nMore.")
    )
    assert (found.info.title, found.info.summary) == ("My own", "one line")
    assert (found.info.paper, found.info.family) == ("ours", "your own")


@pytest.mark.parametrize(
    ("option", "kind"), [("tasks", "stream"), ("split", "stream"), ("device", "run")]
)
def test_an_option_of_a_method_must_not_be_called_like_one_of_the_stream_or_the_run(
    option: str, kind: str
) -> None:
    with pytest.raises(UserError, match=f"option `{option}` of method `mine`.*{kind}"):
        register("mine")(options_of("My", **{option: Field(3, description="of mine")}))


# Groups. -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GROUPS)
def test_no_group_has_more_than_three_generations_of_ancestors(name: str) -> None:
    """Of any training, of training the ViT, of a family: who looks for an option looks there."""

    def generations(group: type) -> int:
        if group in (Options, MethodConfig) or not issubclass(group, Options):
            return 0
        return 1 + max(map(generations, group.__bases__))

    assert generations(GROUPS[name]) - 1 <= 3


@pytest.mark.parametrize("name", GROUPS)
def test_every_option_has_a_description_and_a_default(name: str) -> None:
    group = GROUPS[name]
    group()  # all defaults are valid together
    for option, field in group.model_fields.items():
        assert field.description, option
        assert not field.is_required(), option
    assert set(group.main) <= group.model_fields.keys()


@pytest.mark.parametrize("name", METHODS)
def test_no_method_inherits_from_another_method(name: str) -> None:
    """They share frames and parts, so that a change to one changes no other."""
    methods = {method.load() for method in METHODS.values()}
    assert not methods & set(METHODS[name].load().__mro__[1:])


# Values. -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_no_option_takes_a_number_that_is_not_finite(value: float) -> None:
    for group in GROUPS.values():
        for option, field in group.model_fields.items():
            if float in (field.annotation, *get_args(field.annotation)):
                with pytest.raises(UserError, match=option):
                    build(group, {option: value})


EXTREME = {
    "head_lr_scale": [1e308, 1e-300],
    "lr": [1e308, 1e300],
    "devices": [10**6, 10**30],
    "center": [1e-300],
    "area": [1e-300],
    "memory_gb": [1e308],
    "checkpoint_minutes": [1e308],
}


@pytest.mark.parametrize("option", EXTREME)
def test_numbers_that_cannot_be_meant_are_refused(option: str) -> None:
    for value in EXTREME[option]:
        with pytest.raises(UserError, match=option):
            make_plan(options={option: value})


def test_more_devices_than_there_are_are_refused_before_anything_starts() -> None:
    with pytest.raises(UserError, match=r"devices=1000.*processor cores"):
        launch(RunOptions(device="cpu", devices=1000))


SIZES = {  # options whose numbers become tensors, by method
    "hash": {"experts": 10**5, "prompt_length": 10**4},
    "finetune": {"experts": 10**5, "prompt_length": 10**4},
    "l2p": {"prompts": 10**5, "prompt_length": 10**4},
    "cpg": {"experts": 10**5, "prompt_length": 10**4},
    "ranpac": {"projection": 10**5},
}


def test_sizes_that_nobody_means_are_refused_at_once() -> None:
    for name in ("experts", "prompt_length", "batch_size", "eval_batch_size", "align_samples"):
        for size in (10**9, 10**13, 2**62):
            with pytest.raises(UserError, match=f"{name}={size}: Input should be less than"):
                make_plan(options={name: size})


@pytest.mark.parametrize("method", SIZES)
def test_sizes_that_this_machine_has_not_are_refused_with_the_estimate(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hashprompt.storage.files.memory_budget", lambda: 3 * 10**8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"tensors of .* would take [\d,.]+ GB\. At most half"):
        run(method, "digits", out=tmp_path / "run", **SIZES[method])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10**6  # kB
    assert not (tmp_path / "run").exists()


def test_pseudo_features_that_this_machine_has_no_room_for_are_refused() -> None:
    gaussians = ClassGaussians(8, "variance")
    gaussians.add(torch.randn(20, 8), torch.zeros(20, dtype=torch.long), [0])
    with pytest.raises(UserError, match="pseudo-features of each class would take"):
        GaussianSampler(gaussians).draw(10**12)
    with pytest.raises(UserError, match="draws around 20 features would take"):
        virtual_outliers(
            torch.randn(20, 8), 5, OvorConfig().model_copy(update={"noise_draws": 10**11})
        )


def test_the_guard_of_memory_changes_no_number() -> None:
    backbone, planned = load_backbone("nano").model, make_plan("hash")
    torch.manual_seed(3)
    guarded = build_method("hash", planned.method_config, backbone).state_dict()
    torch.manual_seed(3)
    plain = find_method("hash").load()(planned.method_config, backbone).state_dict()
    drawn = plain.keys() - {"routers.current"}  # which has no content before the first task
    assert all(torch.equal(guarded[name], plain[name]) for name in drawn)


def test_a_long_value_is_not_echoed_whole() -> None:
    long = "x" * 5000
    for wrong in (
        {"options": {"top_k": long}},
        {"options": {long: 3}},
        {"options": {"layers": [*range(5000), "a"]}},
        {"options": {"top_k": {"a": long}}},
        {"method": long},
        {"stream": long},
        {"backbone": long},
        {"preset": long},
        {"seed": long},
    ):
        with pytest.raises(UserError) as refused:
            make_plan(**wrong)  # type: ignore[arg-type]
        assert len(str(refused.value)) < 1000, wrong
    assert unknown("option", long, ["a"]).count("x") < 80
    assert shortened("short\n value") == "short value"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.sampled_from(("auto", "none", "sgd", "1e5", "32", "x" * 5000, 10**30, 1 + 2j, object())),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@st.composite
def settings_of_methods(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A method, and values for some of its options and others."""
    method = draw(st.sampled_from(sorted(METHODS)))
    groups = (METHODS[method].config, StreamOptions, RunOptions)
    names = [name for group in groups for name in group.model_fields] + ["nonsense", "x" * 999]
    return method, draw(st.dictionaries(st.sampled_from(names), VALUES, min_size=1, max_size=3))


@given(settings_of_methods())
def test_whatever_is_set_is_taken_or_refused_in_words(case: tuple[str, dict[str, Any]]) -> None:
    method, options = case
    answer = ""
    try:
        make_plan(method, options=options).to_dict()
    except UserError as error:
        answer = str(error)
    assert len(answer) < 1000


def test_a_value_that_fits_no_group_names_the_nearest_option() -> None:
    with pytest.raises(UserError, match="mean `top_k`"):
        split_options({"topk": 3}, METHODS["hash"].config, RunOptions)


def test_the_kind_of_a_value_is_not_named_as_pydantic_names_it() -> None:
    with pytest.raises(UserError) as error:
        build(HashConfig, {"align_samples": "mean"})
    assert str(error.value).startswith("Invalid option: align_samples='mean': Input should be a")
