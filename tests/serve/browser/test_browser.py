"""The page in a real browser, with a real server behind it: teaching and asking."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pictures import write_photos
from visits import ask, go_to_first, open_tab, say_instead

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
expect = playwright.expect
# One server for all of them.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


# Teaching. ----------------------------------------------------------------------------------------


def test_the_first_classes_are_planned_and_taught(journey: dict[str, str]) -> None:
    assert journey["tab"] == "Teach"
    assert re.search("3 new classes. Usable after about .* ash 6 photos, new", journey["plan"])
    assert journey["state after a reload"] in ("waiting", "running")
    assert journey["done"].startswith("Learned")
    assert "Open report" in journey["done"]


def test_the_report_opens(page: Any) -> None:
    open_tab(page, "Teach")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open report").first.click()
    expect(opened.value.locator("body")).to_contain_text("elm")


def test_a_person_decides_about_a_name_that_differs_by_case(page: Any, photos: Path) -> None:
    open_tab(page, "Teach")
    page.locator("#teach-files").set_input_files(photos / "noise.png")
    page.get_by_label("Class of 1 photo").fill("ASH")
    page.get_by_role("button", name="See the plan").click()
    page.get_by_role("button", name="Same class: ash").click()
    expect(page.locator("#plan")).to_contain_text("more photos of 1 known class")
    expect(page.locator("#plan li")).to_have_text("ash 1 photo, known")


def test_the_plan_says_which_photos_are_left_out(page: Any, photos: Path) -> None:
    open_tab(page, "Teach")
    brought = [photos / name for name in ("more/elm/0-0.png", "noise.png", "broken.jpg")]
    page.locator("#teach-files").set_input_files(brought)
    page.get_by_label("Class of 3 photos").fill("elm")
    page.get_by_role("button", name="See the plan").click()
    expect(page.locator("#plan li")).to_have_text("elm 1 of 3 photos, known")
    expect(page.locator("#plan .notice")).to_contain_text("1 of 3 photos were learned before")
    expect(page.locator("#plan .notice")).to_contain_text("broken.jpg")


def test_photos_without_a_label_are_not_sent(page: Any, photos: Path) -> None:
    open_tab(page, "Teach")
    page.locator("#teach-files").set_input_files(photos / "noise.png")
    page.get_by_role("button", name="See the plan").click()
    expect(page.locator("#teach-error")).to_contain_text("Enter the class of these photos")
    expect(page.get_by_label("Class of 1 photo")).to_be_focused()


def test_a_zip_of_class_folders_is_planned_and_taught(
    page: Any, photos: Path, tmp_path: Path
) -> None:
    write_photos(tmp_path / "new", ("fig",), each=6)
    zipped = shutil.make_archive(str(tmp_path / "trees"), "zip", tmp_path / "new")
    open_tab(page, "Teach")
    page.locator("#teach-files").set_input_files(photos / "noise.png")
    page.locator("#teach-files").set_input_files(zipped)
    expect(page.locator("#teach-note")).to_contain_text("A zip file is taught separately")
    expect(page.locator("#tray")).to_contain_text("trees.zip")
    page.get_by_role("button", name="See the plan").click()
    expect(page.locator("#plan li")).to_have_text("fig 6 photos, new")
    page.get_by_role("button", name="Start teaching").click()
    page.get_by_text(", 4 classes").wait_for()
    open_tab(page, "Ask")
    ask(page, tmp_path / "new" / "fig" / "0-0.png")
    expect(page.locator(".answer").get_by_role("heading")).to_contain_text("fig")
    go_to_first(page)


# Asking. ------------------------------------------------------------------------------------------


def test_an_answer_shows_photo_label_and_bars(page: Any, photos: Path) -> None:
    ask(page, photos / "trees" / "ash" / "0-0.png", photos / "trees" / "cedar" / "0-0.png")
    cards = page.locator(".answer")
    expect(cards.nth(0).get_by_role("heading")).to_contain_text("ash")
    expect(cards.nth(1).get_by_role("heading")).to_contain_text("cedar")
    expect(cards.nth(0).locator(".bars li")).to_have_count(3)
    first, second = (cards.nth(0).locator(".bar span").nth(i).bounding_box() for i in (0, 1))
    assert first["width"] > second["width"]
    assert cards.nth(0).locator("img").evaluate("image => image.naturalWidth") == 32
    expect(page.locator("#live")).to_have_text("2 photos answered.")


def test_a_photo_can_be_dropped_and_pasted(page: Any, photos: Path) -> None:
    pixels = list((photos / "trees" / "ash" / "0-0.png").read_bytes())
    brought = """([kind, pixels]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(pixels)], `${kind}.png`, { type: "image/png" }));
      const event = kind === "drop"
        ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
        : new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
      document.body.dispatchEvent(event);
    }"""
    for kind in ("drop", "paste"):
        page.evaluate(brought, [kind, pixels])
        expect(page.locator(".answer .file").first).to_have_text(f"{kind}.png")
        expect(page.locator(".answer").first.get_by_role("heading")).to_contain_text("ash")


def test_a_broken_photo_is_shown_next_to_good_ones(page: Any, photos: Path) -> None:
    ask(page, photos / "broken.jpg", photos / "trees" / "ash" / "0-1.png")
    expect(page.locator(".answer").nth(0)).to_contain_text("No answer")
    expect(page.locator(".answer").nth(1).get_by_role("heading")).to_contain_text("ash")


def test_unknown_and_unsure_are_described(page: Any, photos: Path) -> None:
    one = {
        **{"name": "a.png", "label": "ash", "confidence": 0.5, "unknown": 0.99, "error": None},
        "probabilities": {"1": 0.1, "ash": 0.5, "elm": 0.4},
        "closest": [
            {"class": "elm", "learned": "taught-2026-05-02-ab12", "distance": 1.5},
            {"class": "elm", "learned": "garden", "distance": 1.7},
        ],
    }
    marks = [{"is_unknown": True, "unsure": True}, {"is_unknown": False, "unsure": True}]
    say_instead(page, "/api/ask", {"version": 2, "answers": [{**one, **mark} for mark in marks]})
    ask(page, photos / "trees" / "ash" / "0-0.png", photos / "trees" / "ash" / "0-1.png")
    first, second = page.locator(".answer").all()
    expect(first.get_by_role("heading")).to_have_text("Unknown")
    expect(first).to_contain_text("Most probable: ash (50\u00a0%)")
    expect(first).to_contain_text("Closest classes: elm (learned 2 May) and elm (session garden).")
    expect(second.get_by_role("heading")).to_contain_text("ash")
    expect(second).to_contain_text("Unsure: this may be wrong.")
    expect(second.locator(".bars .label")).to_have_text(["ash", "elm", "1"])


def test_errors_are_shown_where_the_person_looks(page: Any, photos: Path) -> None:
    say_instead(page, "/api/ask", {"error": "Too many questions. Try again soon."}, status=503)
    ask(page, photos / "trees" / "ash" / "0-0.png")
    expect(page.locator(".answer")).to_contain_text("Too many questions. Try again soon.")
    page.unroute("**/api/ask")
    page.context.set_offline(True)
    ask(page, photos / "trees" / "ash" / "0-0.png")
    expect(page.locator(".answer").first).to_contain_text("The server does not respond")
    page.context.set_offline(False)
