"""The page of what a learn changed, from changes small enough to check by hand."""

import base64
import copy
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hashprompt.errors import UserError
from hashprompt.photos.report import page as page_module
from hashprompt.photos.report.changes import Changes, ClassChange
from hashprompt.photos.report.figures import (
    LOSS,
    draw_accuracy,
    draw_usage,
    label_of,
    rows_to_draw,
    thumbnail,
)
from hashprompt.photos.report.page import render_page, write_page

OLD = {"classes": ["robin", "wren", "gull"]}
# Old classes: 26 of 28 right before, 22 of 28 after; robin has 6 newly held-out photos besides.
INFO: dict[str, Any] = {
    "number": 3,
    "created": "2026-05-31T14:02:11+00:00",
    "source": "2026-05",
    "classes": ["robin", "wren", "gull", "<b>owl</b>", "kite"],
    "batches": [[0, 1], [2], [0, 3, 4]],
    "batch_names": ["spring", "2026-04", "2026-05"],
    "images": {"robin": [72, 18], "wren": [40, 8], "gull": [41, 8], "<b>owl</b>": [20, 5]}
    | {"kite": [3, 0]},
    "accuracy": {"robin": [15, 18], "wren": [4, 8], "gull": [8, 8], "<b>owl</b>": [3, 5]}
    | {"kite": [0, 0]},
    "before": {"robin": [12, 12], "wren": [7, 8], "gull": [7, 8]},
    "after": {"robin": [10, 12], "wren": [4, 8], "gull": [8, 8]},
    "confusions": [["wren", "<b>owl</b>", 3], ["robin", "wren", 2], ["<b>owl</b>", "kite", 1]],
    "temperature": 7.134,
    "calibration": {"images": 39, "fitted": True, "error_uncalibrated": 21.37, "error": 2.94},
    "usage": [[30, 10, 0], [0, 10, 30], [20, 20, 0]],
    "seconds": {"statistics": 10.0, "wtp": 30.0},
    "total_seconds": 44.4,
    "notes": ["2 photos of wren & gull are gone."],
}
SMALL = {"confusions": [], "usage": None, "notes": [], "seconds": {}}
UNFITTED = {"temperature": 5.0, "calibration": {"images": 0, "fitted": False}}


def changed(**fields: Any) -> Changes:
    return Changes(copy.deepcopy(INFO) | fields, OLD, 3_400_000, 2_900_000)


def picture(**fields: Any) -> dict[str, Any]:
    image = torch.zeros(3, 200, 400, dtype=torch.uint8)
    image[0] = 200
    named = {"name": "a.jpg", "truth": "wren", "said": "<b>owl</b>", "lost": True}
    return {"image": image, **named, **fields}


def many(old: int, new: int) -> Changes:
    """Old class i of `old` lost i points of 100; new ones are all right."""
    names = [f"class {i}" for i in range(old + new)]
    return Changes(
        copy.deepcopy(INFO)
        | SMALL
        | {
            "classes": names,
            "batches": [list(range(old)), list(range(old, old + new))],
            "batch_names": ["first", "second"],
            "images": {key: [9, 100] for key in names},
            "accuracy": {n: [100 - i if i < old else 100, 100] for i, n in enumerate(names)},
            "before": {key: [100, 100] for key in names[:old]},
            "after": {n: [100 - i, 100] for i, n in enumerate(names[:old])},
        },
        {"classes": names[:old]} if old else None,
        10,
        5,
    )


def text_of(html: str) -> str:
    """What a reader sees, one piece of text per line."""
    parser, pieces = HTMLParser(), []
    parser.handle_data = lambda data: pieces.append(data.strip())  # type: ignore[method-assign]
    parser.feed(html[html.index("<body>") :])
    return "\n".join(filter(None, pieces))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("reports") / "new" / "version-0003.html"
    pictures = [picture(), picture(name="b.jpg", lost=False)]
    assert write_page(changed(), pictures, path, "birds") == path
    assert [p.name for p in path.parent.iterdir()] == ["version-0003.html"]
    return path.read_text(encoding="utf-8")


def test_the_title_names_classifier_version_and_what_was_learned(page: str) -> None:
    assert "<title>birds, version 3: learned 2026-05</title>" in page
    text = text_of(page)
    assert text.startswith("birds, version 3: learned 2026-05\n2 new classes and more photos of 1 ")
    assert "2026-05-31 14:02:11 UTC" in text


def test_without_a_name_the_title_begins_with_the_version() -> None:
    assert "<h1>Version 3: learned 2026-05</h1>" in render_page(changed(**SMALL), [])


def test_the_cards_tell_the_headline(page: str) -> None:
    text = text_of(page)
    assert "Accuracy now\n76.9 %\nright on 39 held-out photos" in text  # 30 of 39
    assert "Old classes\n92.9 → 78.6\n% right, before → after" in text
    assert "Classes\n5\n2 of them new" in text
    assert "Size\n3.4 MB\n+0.5 MB with this learn" in text
    assert "Time\n44 s\n" in text


def test_the_table_holds_every_class_with_its_numbers(page: str) -> None:
    text = text_of(page)
    assert "5 classes in numbers" in text
    assert "\nwren\n2\nold\n40\n8\n88 %\n50 %\n-37.5\n" in text
    assert "\nrobin\n1\nold\n72\n18 (12 before)\n100 %\n83 %\n-16.7\n" in text
    assert "\n<b>owl</b>\n4\nnew\n20\n5\n–\n60 %\n" in text
    assert "\nkite\n5\nnew\n3\n0\n–\n–\n" in text
    assert "Photos held out by this learn do not count" in text


def test_losses_come_largest_first_with_what_they_are_taken_for(page: str) -> None:
    text = text_of(page)
    wren = text.index("\nwren\n88 %\n50 %\n37.5\n8\n<b>owl</b> (3×)\n")
    robin = text.index("\nrobin\n100 %\n83 %\n16.7\n18 (12 before)\nwren (2×)\n")
    assert text.index("Old classes that lost") < wren < robin


def test_confusions_of_old_and_new_classes_stand_apart_from_others(page: str) -> None:
    text = text_of(page)
    crossed, others = (
        text.index("New confusions between old and new"),
        text.index("Other confusions"),
    )
    assert crossed < text.index("\nwren\nold\n<b>owl</b>\nnew\n3\n") < others
    assert others < text.index("\nrobin\nold\nwren\nold\n2\n")
    assert others < text.index("\n<b>owl</b>\nnew\nkite\nnew\n1\n")
    assert "3 wrong answers in rarer pairs not listed." in text  # 39 - 30 wrong, 6 listed


def test_pictures_say_what_they_show_and_which_were_right_before(page: str) -> None:
    text = text_of(page)
    assert "wren\n, taken for\n<b>owl</b>\nwas right before\na.jpg\n" in text
    assert "wren\n, taken for\n<b>owl</b>\nb.jpg\n" in text


def test_a_page_with_pictures_says_so_and_one_without_does_not(page: str) -> None:
    notice = "This page holds pictures of your photos"
    assert notice in text_of(page)
    bare = text_of(render_page(changed(**SMALL), []))
    assert notice not in bare
    assert "Photos that are confused" not in bare


def test_sureness_time_and_notes_are_told(page: str) -> None:
    text = text_of(page)
    assert "temperature\n7.13\nfitted to 39 held-out photos" in text
    assert "calibration error without it\n21.4 points" in text
    assert "calibration error with it\n2.9 points" in text
    assert "\nwtp\n30.0 s\n75 %\nstatistics\n10.0 s\n25 %\n" in text
    assert "2 photos of wren & gull are gone." in text


def test_sections_follow_the_order_of_what_matters(page: str) -> None:
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles == [
        "Accuracy by class, before and after",
        "Old classes that lost",
        "New confusions between old and new classes",
        "Other confusions",
        "Photos that are confused",
        "Use of the prompt pool",
        "How sure it is",
        "Time",
        "Notes",
    ]


def test_how_one_prompt_is_used_needs_no_figure() -> None:
    html = render_page(changed(**{**SMALL, "usage": [[3], [4], [5]]}), [])
    assert "Use of the prompt pool" not in html


def test_names_never_become_markup() -> None:
    evil = '"><script>alert(1)</script>'
    info = {"source": evil, "batch_names": [evil] * 3, "notes": [evil]}
    html = render_page(changed(**info), [picture(name=evil, truth=evil, said=evil)], evil)
    assert "<script" not in html
    assert "<b>owl" not in html
    assert text_of(html).count(evil) >= 6


def test_the_page_is_one_file_without_scripts_or_references(page: str) -> None:
    assert not re.search(r"<(script|link|iframe|object)|https?://|url\(|@import|\son\w+=", page)
    sources = re.findall(r'(?:src|srcset|href)="([^"]*)"', page)
    assert len(sources) == 2 * 2 + 2  # two figures, light and dark, and two photos
    assert all(re.match("data:image/(png|jpeg);base64,", source) for source in sources)


def test_without_held_out_photos_the_page_says_not_tested() -> None:
    nothing = {name: [0, 0] for name in INFO["classes"]}
    html = render_page(changed(accuracy=nothing, before={}, after={}, **SMALL, **UNFITTED), [])
    text = text_of(html)
    assert "Accuracy now\n–\nnot tested" in text
    assert "Old classes\n–\nnot tested" in text
    assert "Old classes could not be tested." in text
    assert "Not tested: there are no held-out photos." in text
    assert "temperature 5.00, which was not fitted" in text
    assert "<img" not in html
    assert "None" not in text


def test_a_first_learn_of_one_class_has_nothing_to_lose() -> None:
    text = text_of(render_page(many(0, 1), []))
    assert "Old classes\n–\nthere were none" in text
    assert "Size\n0.0 MB\nthe first version" in text
    assert "1 class in numbers" in text
    assert "Old classes that lost" not in text
    assert "onfusions" not in text


def test_no_loss_is_said_too() -> None:
    text = text_of(
        render_page(changed(before={"gull": [8, 8]}, after={"gull": [8, 8]}, **SMALL), [])
    )
    assert "Old classes that lost\nNone." in text


def test_two_hundred_classes_are_all_in_the_table_and_forty_in_the_figure() -> None:
    changes = many(100, 100)
    text = text_of(render_page(changes, []))
    assert text.count("\nold\n9\n100\n") == text.count("\nnew\n9\n100\n") == 100
    assert "Drawn are 40 of 200 classes: the largest losses first." in text
    drawn = rows_to_draw(changes.classes())
    assert [row.name for row in drawn[:3]] == ["class 99", "class 98", "class 97"]
    assert sum(row.is_new for row in drawn) == 20


def test_few_new_classes_leave_their_room_to_old_ones() -> None:
    drawn = rows_to_draw(many(100, 3).classes())
    assert [row.is_new for row in drawn] == [False] * 37 + [True] * 3


def test_the_figure_draws_before_and_after_where_they_are() -> None:
    rows = rows_to_draw(changed().classes())
    assert [row.name for row in rows] == ["wren", "robin", "gull", "<b>owl</b>"]
    axes = draw_accuracy(rows, {row.name: row.name for row in rows}).axes[0]
    bars = [line for line in axes.lines if line.get_linestyle() == "-"]
    assert [tuple(bar.get_xdata()) for bar in bars] == [
        (87.5, 50.0),
        (100.0, pytest.approx(100 * 10 / 12)),
        (87.5, 100.0),
    ]
    assert [bar.get_color() == LOSS for bar in bars] == [True, True, False]
    dots = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert dots["after, not lost"] == [[100.0, 2.0]]
    assert dots["new class"] == [[60.0, 3.0]]
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.name for row in rows]


def test_a_known_class_without_earlier_answers_is_a_single_dot() -> None:
    rows = [ClassChange("robin", False, 9, 4, None, 75.0)]
    axes = draw_accuracy(rows, {"robin": "robin"}).axes[0]
    assert [line.get_label() for line in axes.lines] == ["after, not lost"]


def test_usage_rows_carry_the_names_of_the_learns() -> None:
    axes = draw_usage(INFO["usage"], INFO["batch_names"]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "spring",
        "2026-04",
        "2026-05",
    ]
    assert axes.images[0].get_array().tolist()[2] == [50.0, 50.0, 0.0]


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("Rotkehlchen, häufig", "Rotkehlchen, häufig"),
        ("$x^2$", r"\$x^2\$"),
        ("小鳥", "number 7"),
        ("a" * 30, "a" * 24 + "…"),
    ],
)
def test_names_are_drawn_as_they_can_be(name: str, drawn: str) -> None:
    assert label_of(name, 7) == drawn


@pytest.mark.parametrize(
    ("size", "shown"), [((200, 400), (160, 80)), ((900, 300), (53, 160)), ((32, 32), (32, 32))]
)
def test_pictures_are_at_most_160_pixels_and_never_enlarged(
    size: tuple[int, int], shown: tuple[int, int]
) -> None:
    image = torch.zeros(3, *size, dtype=torch.uint8)
    image[0] = 200
    with Image.open(io.BytesIO(thumbnail(image))) as small:
        assert (small.format, small.size) == ("JPEG", shown)
        colour = np.array(small).mean((0, 1))
        assert not small.getexif()
    assert colour == pytest.approx([200, 0, 0], abs=4)


def test_at_most_24_pictures_are_shown() -> None:
    html = render_page(changed(**SMALL), [picture(name=f"{i}.jpg") for i in range(30)])
    assert html.count("data:image/jpeg") == 24
    jpeg = re.search(r"data:image/jpeg;base64,([^\"]+)", html)
    assert jpeg is not None
    assert base64.b64decode(jpeg[1])[:2] == b"\xff\xd8"


def test_a_page_that_cannot_be_written_leaves_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "render_page", lambda *_: "page")
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UserError, match="Could not write"):
        write_page(changed(), [], tmp_path / "taken" / "page.html")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]
