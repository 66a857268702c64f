"""Screenshots of the page of `hashprompt serve`, from a real run.

    python benchmarks/screenshots.py photos/ --backbone vit_tiny.safetensors --out docs/images

`photos/` holds class folders. All but the last three classes are taught in the first session, then
one of these; the last two are unknown until one is taught from the photos in the review queue.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

WIDE, NARROW, PATIENCE = 1200, 390, 1_800_000  # pixels, pixels, milliseconds
EACH = 20  # photos of a class to teach; the others are sent as requests


@contextmanager
def server(folder: Path, *options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "hashprompt", "serve", str(folder), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout or ():
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0]
                break
    finally:
        process.terminate()
        process.wait()


class Camera:
    """Takes pictures of a page: wide and narrow, light and dark."""

    def __init__(self, page: Page, out: Path) -> None:
        self._page, self._out = page, out

    def take(self, name: str, *also: str) -> None:
        """`also`: of `dark`, `narrow`, `narrow-dark`."""
        for kind in ("", *also):
            width = NARROW if "narrow" in kind else WIDE
            self._page.set_viewport_size({"width": width, "height": 800})
            self._page.emulate_media(color_scheme="dark" if "dark" in kind else "light")
            self._page.wait_for_timeout(400)
            file = self._out / f"serve-{'-'.join(filter(None, (name, kind)))}.png"
            self._page.screenshot(path=file, full_page=True)
            Image.open(file).convert("RGB").quantize(256, kmeans=2).save(file, optimize=True)
            print(file, flush=True)


def teach(page: Page, classes: list[list[Path]], camera: Camera | None = None) -> None:
    page.get_by_role("tab", name="Teach").click()
    for photos in classes:
        page.locator("#teach-files").set_input_files(photos[:EACH])
        page.locator("#tray input").last.fill(photos[0].parent.name)
    page.get_by_role("button", name="See the plan").click()
    page.get_by_role("button", name="Start teaching").wait_for()
    if camera:
        camera.take("teach", "narrow-dark")
    before = page.locator("#jobs article").count()
    page.get_by_role("button", name="Start teaching").click()
    page.locator("#jobs article").nth(before).wait_for()
    if camera:
        page.locator("#jobs .words").filter(has_text=re.compile(r"[3-9]\d\s%")).wait_for()
        camera.take("progress")
    wait_until_learned(page)
    if camera:
        camera.take("learned", "dark")


def wait_until_learned(page: Page) -> None:
    page.locator("#jobs article:first-child[data-state=done]").wait_for()


def ask(page: Page, photos: list[Path]) -> None:
    page.get_by_role("tab", name="Ask").click()
    page.locator("#ask-files").set_input_files(photos)
    page.locator(".answer").first.wait_for()
    while page.locator(".looking").count():
        page.wait_for_timeout(200)


def show_unsure(page: Page, unknown: list[list[Path]], camera: Camera) -> None:
    page.get_by_role("tab", name="Unsure").click()
    page.get_by_role("switch").click()
    page.get_by_text("No photos yet").wait_for()
    ask(page, [photo for photos in unknown for photo in photos[:EACH]])
    page.get_by_role("tab", name="Unsure").click()
    page.locator(".tick").first.wait_for()
    camera.take("unsure", "narrow", "narrow-dark")
    name_one_class(page, unknown)
    page.get_by_role("button", name="Teach ticked photos").first.click()
    page.get_by_role("heading", name="Learning").wait_for()
    wait_until_learned(page)


def name_one_class(page: Page, unknown: list[list[Path]]) -> None:
    """Tick the photos of the first cluster that are of one class, and name it."""
    cluster = page.locator("#groups article").first
    labels = {photo.name: photo.parent.name for photos in unknown for photo in photos}
    titles = [image.get_attribute("title") or "" for image in cluster.locator("img").all()]
    shown = [labels[title.split(": ")[0]] for title in titles]
    for label, box in zip(shown, cluster.get_by_role("checkbox").all(), strict=True):
        box.set_checked(label == shown[0])
    cluster.get_by_label("Class", exact=True).fill(shown[0])


def walk(page: Page, classes: list[list[Path]], out: Path) -> None:
    camera = Camera(page, out)
    page.goto("/")
    page.get_by_role("heading", name="No classes yet").wait_for()
    camera.take("empty", "narrow-dark")
    teach(page, classes[:-3], camera)
    teach(page, classes[-3:-2])
    ask(page, [photos[EACH + 1] for photos in classes])
    camera.take("ask", "dark", "narrow", "narrow-dark")
    show_unsure(page, classes[-2:], camera)
    page.get_by_role("tab", name="History").click()
    page.locator("#versions li").first.wait_for()
    camera.take("history", "dark", "narrow", "narrow-dark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--classes", nargs="+", help="folders, in this order; default: all")
    parser.add_argument("--backbone", default="nano")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--name", default="zoo")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    names = args.classes or sorted(path.name for path in args.photos.iterdir())
    classes = [sorted((args.photos / name).iterdir()) for name in names]
    model = Path(tempfile.mkdtemp()) / args.name
    options = ("--backbone", args.backbone, "--effort", args.effort)
    options += ("--photos", str(model.parent / "taught"))  # else no held-out photo is tested twice
    with server(model, *options) as address, sync_playwright() as playwright:
        launch: dict[str, Any] = {"executable_path": which("chromium"), "args": ["--no-sandbox"]}
        context = playwright.chromium.launch(**launch).new_context(base_url=address)
        context.set_default_timeout(PATIENCE)
        walk(context.new_page(), classes, args.out)


if __name__ == "__main__":
    main()
