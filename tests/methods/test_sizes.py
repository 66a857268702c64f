"""Values that methods store on a ViT-B for 10 tasks of 10 classes, misfits, and sources."""

from typing import Any

import pytest
from fakes import make, prompt_machinery

from hashprompt.errors import UserError
from hashprompt.methods import METHODS

ADAPTERS = 12 * (769 * 64 + 65 * 768)  # 1,189,632, as published
PROJECTION = 768 * 384 + 384 + 384 * 192 + 192
KERNELS, SHARED = 10 * 5 * 7 * 2 * 12 * (17 * 17 + 1), 7 * 2 * 12 * 36 * 80
PROMPTS_AND_ROUTERS: list[tuple[str, dict[str, Any], int]] = [
    ("aper", {}, ADAPTERS),
    ("aper", {"adaptation": "vpt"}, 12 * 5 * 768),
    ("aper", {"adaptation": "ssf"}, 205_824),
    ("c-ada", {}, 12 * (10 * 2 * 768 * (40 + 20) + 2 * 768)),
    ("coda", {}, 3_840_000),
    # The values before a task are stored too.
    ("convprompt", {}, KERNELS + 50 * 192 + 2 * (SHARED + PROJECTION)),
    ("cpg", {}, 1_658_880),
    ("cprompt", {}, 844_800),
    ("dualprompt", {}, 944_640),
    ("ease", {}, 10 * ADAPTERS),
    ("evoprompt", {}, 884_736),
    ("hash", {}, 1_497_600),
    ("hide", {}, 1_536_000),
    ("hide", {"prompt_length": 5}, 384_000),
    ("inflora", {}, 10 * 12 * (10 * 768 + 2 * 768 * 10)),
    ("l2p", {}, 138_240),
    ("lae", {}, 2 * 5 * (769 * 5 + 6 * 768 + 1)),
    ("lae", {"pet": "lora"}, 2 * 5 * (2 * 2 * 5 * 768 + 2)),
    ("lae", {"pet": "prefix"}, 2 * 5 * (2 * 10 * 768 + 2)),
    ("macil", {}, 10 * 12 * 2 * 2 * 32 * 768),
    ("norga", {}, 1_536_010),
    ("ovor", {}, 107_520),
    ("pina", {"alignment": "deep"}, 10 * (10 * 768 + 12 * (769 * 16 + 17 * 768))),
    ("ranpac", {}, ADAPTERS),
    ("s-prompt-plus", {}, 1_543_680),
    ("s-prompts", {}, 10 * 10 * 768),
    ("smope", {}, 230_400),
]
MISFITS: list[tuple[str, dict[str, Any], str]] = [
    ("cpg", {"top_k": 9, "experts": 6}, "top_k=9 must not exceed experts=6"),
    ("dualprompt", {"general_layers": (1, 2, 3)}, r"blocks \[3\] are in layers and in general_la"),
    ("dytox", {"trainable": "last", "last_blocks": 3}, "3 last blocks .* has 2"),
    ("evoprompt", {"subspace": 5}, "subspace=5 must divide the width 16"),
    ("l2p", {"prompts": 4}, "top_k=5 must not exceed prompts=4"),
    ("l2p", {"trained_blocks": 3}, "this backbone has 2"),
    ("lae", {"layers": (1, 3)}, "blocks 1–2"),
    ("ovor", {"prompt_lengths": [5, 5]}, "prompt_lengths"),
    ("ovor", {"prompt_lengths": [5, 5, 20, 20, 0]}, "prompt_lengths"),
    ("slca-plus", {"rank": 17}, "rank=17"),
    ("smope", {"top_k": 6, "experts": 5}, "top_k=6 must not exceed experts=5"),
]


@pytest.mark.parametrize(("method", "options", "expected"), PROMPTS_AND_ROUTERS)
def test_prompts_and_routers(method: str, options: dict[str, Any], expected: int) -> None:
    assert prompt_machinery(method, **options) == expected


def test_class_keys_grow_with_the_classes() -> None:
    assert prompt_machinery("cprompt", classes=200) == 921_600


@pytest.mark.parametrize(("method", "options", "message"), MISFITS)
def test_options_that_do_not_fit_are_refused(
    method: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        make(method, **options)


def test_every_published_method_names_its_paper_by_a_link_or_its_code() -> None:
    ours = {"averaged-prompt", "gaussian-head", "linear-probe", "finetune", "joint"}
    for name, method in METHODS.items():
        info = method.info
        assert name in ours or (info.paper and (info.paper_url or info.code_url)), name
