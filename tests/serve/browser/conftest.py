"""One server, one browser, and a classifier of three classes that was taught through the page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import write_photos
from PIL import Image
from serving import ServerProcess
from visits import CHROMIUM, PATIENCE, Visit, words


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of striped pictures; beside them noise, and a file that is no picture."""
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder / "trees", ("ash", "cedar"), each=6)
    write_photos(folder / "more", ("elm",), each=6)
    noise = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.png")
    (folder / "broken.jpg").write_bytes(b"no picture at all")
    return folder


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    reason = "pip install playwright to try the page in a browser"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    pytest.importorskip("fastapi", reason="pip install 'hashprompt[serve]' to try the page")
    if CHROMIUM is None:
        pytest.skip("There is no chromium or chrome in the PATH to try the page with.")
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("serve") / "trees"
    log = folder.with_suffix(".log")
    server = ServerProcess(folder, log, "--backbone", "nano", "--effort", "instant")
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def journey(chromium: Any, address: str, photos: Path) -> dict[str, str]:
    """A first visit, in which three classes are taught."""
    visit = Visit(chromium, address)
    page, seen = visit.page, {}
    page.goto("/")
    page.get_by_role("heading", name="No classes yet").wait_for()
    page.get_by_role("button", name="Teach the first classes").click()
    seen["tab"] = page.locator("[role=tab][aria-selected=true]").inner_text()
    page.locator("#teach-tree").set_input_files(photos / "trees")
    page.locator("#teach-files").set_input_files(sorted((photos / "more" / "elm").iterdir()))
    page.locator("#tray input").last.fill("elm")
    page.get_by_role("button", name="See the plan").click()
    page.get_by_role("button", name="Start teaching").wait_for()
    seen["plan"] = words(page.locator("#plan").inner_text())
    page.get_by_role("button", name="Start teaching").click()
    page.locator("#jobs article").wait_for()
    page.reload()  # in the middle of it
    seen["state after a reload"] = page.locator("#jobs article").get_attribute("data-state")
    page.locator("#jobs article[data-state=done]").wait_for()
    seen["done"] = words(page.locator("#jobs article").inner_text())
    page.get_by_text("Version 1, 3 classes").wait_for()
    visit.close()
    return seen


@pytest.fixture
def page(chromium: Any, address: str, journey: dict[str, str]) -> Iterator[Any]:
    """The page of a classifier that knows ash, cedar and elm."""
    visit = Visit(chromium, address)
    visit.page.goto("/")
    visit.page.get_by_text(", 3 classes").wait_for()
    yield visit.page
    visit.close()
