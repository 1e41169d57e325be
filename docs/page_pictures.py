"""The pictures of docs/page.md, taken of a page in headless Chromium: `python docs/page_pictures.py PAGE.html`.

PAGE.html is the page of a report: `trystate page PAGE.html --report DIR`. Look at each picture before it is committed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parent / "pictures"
R3 = "rendezvous.TORCH.2-2-2-4/identical_workers=4+worker_failure"
WALK = "exit_finish.0,add_to_participants.0,exit_finish.1,add_to_participants.1,finish.0"
WIDE, PHONE = (1280, 860), (400, 860)
SHOTS = {  # name -> address, size, is it dark
    "overview": ("#/overview/rendezvous/TORCH", WIDE, False),
    "player": (f"#/trace/{R3}/agree_on_world/R3", WIDE, False),
    "explorer": (f"#/explore/{R3}/-/{WALK}", WIDE, False),
    "findings": ("#/findings/R3", WIDE, True),
    "phone": (f"#/trace/{R3}/agree_on_world/R3", PHONE, False),
}


def main(page_file: Path) -> None:
    """Take all pictures.

    page_file: the page.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (address, (width, height), dark) in SHOTS.items():
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
            )
            page.goto(page_file.resolve().as_uri() + address)
            page.wait_for_selector("main[data-drawn]")
            page.wait_for_timeout(300)  # the view scrolls to its step
            page.screenshot(path=PICTURES / f"page-{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
