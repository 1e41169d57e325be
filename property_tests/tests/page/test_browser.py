"""The page in a browser: headless Chromium opens it from a file, as a reader does, and each error is a failure.

Each page of the browser is watched: an error in its console, an exception or a request that leaves the file fails the
test. Without Chromium the tests are skipped; with TRYSTATE_BROWSER=required, as in the gate, that is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trystate.commands.searching import Search
from trystate.language import System
from trystate.model.checker.expectations import judge
from trystate.page.contents import Choice, Contents, Result, Shown
from trystate.page.html import build
from trystate.progress import Reporter
from trystate.property_tests.support.page import EMPTY
from trystate.property_tests.support.systems.declarations import declared
from trystate.registry import plan
from trystate.report.json import results_json
from trystate.report.page import contents
from trystate.report.results import Results
from trystate.search.machine import SearchOptions

REQUIRED = os.environ.get("TRYSTATE_BROWSER") == "required"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

try:
    from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
except ImportError:
    if REQUIRED:
        raise
    pytest.skip("playwright is not installed: pip install playwright", allow_module_level=True)
if CHROMIUM is None and not REQUIRED:
    pytest.skip("there is no Chromium: apt-get install chromium", allow_module_level=True)

WAIT_MS = 20_000  # a loaded machine draws slowly
WIDE, PHONE, NARROW = (1400, 1000), (400, 900), (320, 700)
SMALL = "Rendezvous(node=2, min_nodes=2, max_nodes=2, rounds={}) {}"
RUNS = (  # small ones: a step that breaks the world, loops of liveness, three editions, other systems
    SMALL.format(4, "TORCH with worker_failure, identical_workers"), SMALL.format(1, "TORCH with stall"),
    SMALL.format(4, "SEED with worker_failure"), "Agents(node=2, min_nodes=2, max_nodes=2, ends=1) TORCH",
    "Agents(node=2, min_nodes=2, max_nodes=2, ends=1) TRYSTATE", "Barriers(client=2, world=2, rounds=1) TORCH",
    "Barriers(client=2, world=2, rounds=1) TORCH with timeout", "Barriers(client=2, world=2, rounds=1) TRYSTATE",
    "Groups(process=3, group=2, outsiders=1) TORCH with skip", "Registry() TORCH",
)  # fmt: skip
OPTIONS = SearchOptions(states=100_000, seconds=60.0, searches=2, cores=1)
R3 = "#/trace/rendezvous.TORCH.2-2-2-4/identical_workers=4+worker_failure/agree_on_world/R3"
VIEWS = ("#/overview", R3, "#/explore", "#/findings")
AXE = Path(__file__).resolve().parents[3] / "page" / "node_modules" / "axe-core" / "axe.min.js"


Lease = declared(  # a lease that one client may hold at a time
    """
client = index(2)
held = flag(per="client")
@transition(each="client")
def take(self, s, client): 'A client takes the lease that it has not.'; s.when(~s.held[client]); s.held[client] = True
@always(witness="it_is_held")
def one_holds_it(self, s): 'At most one client holds the lease.'; return ~(s.held[0] & s.held[1])
@sometimes()
def it_is_held(self, s): 'The first client holds it.'; return s.held[0]
""",
    System,
    name="Lease",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a few searched runs."""
    runs = {run.label: run for run in plan()}
    reporter = Reporter()
    checked = [Search(n, label, runs[label], judge, OPTIONS, reporter)() for n, label in enumerate(RUNS, 1)]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(build(contents(results_json(Results(checked=checked)))), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a file at a hash; at the end no page may have logged an error or requested anything."""
    said: list[str] = []
    contexts: list[BrowserContext] = []

    def open_(path: Path, view: str = "", size: tuple[int, int] = WIDE, *, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda m: said.append(f"{view}: {m.type}: {m.text}") if m.type != "log" else None)
        page.on("pageerror", lambda error: said.append(f"{view}: {error}"))
        page.on("request", lambda r: said.append(r.url) if not r.url.startswith(("file:", "blob:", "data:")) else None)
        page.goto(path.as_uri() + view)
        page.wait_for_selector("main[data-drawn]")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []


def walked(page: Page) -> list[str]:
    """The actions of the explorer's walk."""
    return page.locator(".path button:not(.redo)").all_text_contents()[1:]


def whole_state(page: Page) -> str:
    return page.locator("aside .full").inner_text()


@pytest.mark.parametrize("size", [WIDE, PHONE, NARROW], ids=["wide", "phone", "narrow"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_opens_without_an_error(
    opened: Callable[..., Page], report: Path, view: str, size: tuple[int, int]
) -> None:
    page = opened(report, view, size, dark=size is PHONE)
    assert page.locator("main").inner_text().strip()
    assert page.locator(".msg.bad").count() == 0
    assert not page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if size is PHONE else "light")


def test_a_stranger_finds_r3_plays_it_and_sees_why_the_guard_passed(opened: Callable[..., Page], report: Path) -> None:
    page = opened(report)
    page.get_by_label("Search the findings").fill("R3")
    page.keyboard.press("Enter")
    page.get_by_label(re.compile("^Play R3")).click()
    page.wait_for_selector(".lanes")
    walks = page.locator("select[aria-label='Walks of this finding']")
    option = walks.locator("option", has_text=re.compile("^agree_on_world, TORCH"))
    walks.select_option(option.first.get_attribute("value"))
    page.wait_for_function("document.querySelector('.sub code')?.textContent === 'agree_on_world'")
    page.keyboard.press("End")
    assert "violated" in page.locator("#live").inner_text()
    assert page.locator(".lrow.cur .nm").inner_text() == "finish"
    assert "The table join decides FINISH" in page.locator("aside").inner_text()
    assert page.locator("tr.lit td").first.inner_text() == "FINISH"


def test_the_player_plays_each_walk_to_its_violation(opened: Callable[..., Page], report: Path) -> None:
    page = opened(report, "#/findings")
    links = page.locator("a.go").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    assert len(links) >= 8
    for link in links:
        page.evaluate("link => { location.hash = link; }", link)
        page.wait_for_function("document.querySelector('.lrow.cur')?.dataset.at === '0'")
        page.keyboard.press("x")
        assert "violated" in page.locator("#live").inner_text()
        assert page.locator(".brk").count() == 1
        assert page.locator(".msg.bad").count() == 0


def test_a_loop_is_shaded_and_played_for_ever(opened: Callable[..., Page], report: Path) -> None:
    page = opened(report, "#/trace/rendezvous.TORCH.2-2-2-1/stall/the_removed_are_told/R6@0")
    assert "repeat for ever" in page.locator(".rep").inner_text()
    assert page.locator(".lrow.loop").count() >= 1
    page.keyboard.press("End")
    last = page.locator(".lrow.cur").get_attribute("data-at")
    page.clock.install()
    page.get_by_label("Step back").click()
    page.get_by_role("button", name="Play", exact=True).click()
    page.clock.run_for(1_200)
    assert page.locator(".lrow.cur").get_attribute("data-at") == last
    page.clock.run_for(1_100)
    assert page.locator(".lrow.cur").get_attribute("data-at") == page.locator(".lrow.loop").first.get_attribute(
        "data-at"
    )


def test_a_message_that_is_pasted_is_found_with_its_findings(opened: Callable[..., Page], report: Path) -> None:
    page = opened(report, "#/overview")
    page.get_by_role("searchbox").fill("[rank0]: DistStoreError: wait timeout after 60000ms, keys: /j.1/MASTER_ADDR")
    page.get_by_role("button", name="Find").click()
    row = page.get_by_role("article", name="Message wait-timeout")
    row.wait_for()
    assert page.locator("article.ms").count() == 1
    assert "if the key ends with MASTER_ADDR" in row.inner_text() and "R1" in row.inner_text()
    page.get_by_role("searchbox").fill("no message of a job")
    page.locator("article.ms").wait_for(state="detached")
    page.get_by_role("searchbox").fill("monitoredBarrier rank")
    assert page.locator("article.ms").count() == 2


def test_a_walk_survives_its_link(opened: Callable[..., Page], report: Path) -> None:
    mine = opened(report, "#/explore/rendezvous.TORCH.2-2-2-4/worker_failure")
    for n in range(5):
        mine.keyboard.press("1")
        mine.wait_for_function(f"document.querySelectorAll('.path button:not(.redo)').length === {n + 2}")
    theirs = opened(report, mine.evaluate("location.hash"))
    assert walked(theirs) == walked(mine)
    assert whole_state(theirs) == whole_state(mine)
    mine.keyboard.press("Backspace")
    mine.wait_for_selector(".path .redo")
    assert walked(mine) == walked(theirs)[:-1]
    mine.keyboard.press("ArrowRight")
    mine.wait_for_function("!document.querySelector('.path .redo')")
    assert whole_state(mine) == whole_state(theirs)


def test_the_explorer_says_which_condition_fails(opened: Callable[..., Page], report: Path) -> None:
    page = opened(report, "#/explore/rendezvous.TORCH.2-2-2-4/worker_failure/-/exit_finish.0,add_to_participants.0")
    assert "join decides" in page.locator(".no").filter(has_text="finish(0)").first.inner_text().replace("\n", " ")
    assert "needs" in page.locator(".no").filter(has_text="worker_fails(0)").first.inner_text()


def test_the_explorer_follows_the_loop_of_a_run_that_never_answers(opened: Callable[..., Page], report: Path) -> None:
    page = opened(report, "#/explore/rendezvous.TORCH.2-2-2-1/stall")
    page.get_by_label("Find the shortest way to").select_option("the_removed_are_told")
    page.get_by_role("button", name="Search").click()
    page.wait_for_selector(".path .loop")
    (first, last) = map(int, re.findall(r"\d+", page.locator(".rep").inner_text()))
    assert page.locator(".rep").inner_text() == f"steps {first} to {last} repeat for ever"
    assert (len(walked(page)), page.locator(".path .loop").count()) == (last, last - first + 1)
    assert "the_removed_are_told" in page.locator(".msg.bad").inner_text()
    theirs = opened(report, page.evaluate("location.hash"))
    assert theirs.locator(".msg.bad").inner_text() == page.locator(".msg.bad").inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"document.querySelectorAll('.path button:not(.redo)').length === {first + 1}")
    assert "the_removed_are_told" in page.locator(".msg.bad").inner_text()
    for _ in range(last - first):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("!document.querySelector('.path .redo')")
    assert page.evaluate("location.hash") == theirs.evaluate("location.hash")
    theirs.keyboard.press("1")
    theirs.wait_for_function(f"document.querySelectorAll('.path button').length === {last + 2}")
    assert theirs.locator(".rep").count() == 0
    unfair = opened(report, page.evaluate("location.hash").replace(f"loop={first - 1}", f"loop={first}"))
    assert (
        "This is no fair run: the steps that repeat do not lead back" in unfair.locator(".msg:not(.bad)").inner_text()
    )
    assert "the_removed_are_told" not in unfair.locator(".msg.bad").inner_text()


def test_the_page_is_used_by_keyboard_alone(opened: Callable[..., Page], report: Path) -> None:
    page = opened(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("!!document.activeElement.closest('.mx')"):
            break
    cell = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") != cell
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".lanes")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.locator(".lrow.cur").get_attribute("data-at") == "1"
    page.keyboard.press("e")
    page.wait_for_selector("#possible")
    assert len(walked(page)) == 1
    page.keyboard.press("?")
    assert page.locator("#help").evaluate("d => d.open")
    page.keyboard.press("Escape")
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != theme


def test_a_class_of_ones_own_opens_and_its_mistake_is_found(opened: Callable[..., Page], tmp_path: Path) -> None:
    mine = tmp_path / "mine.html"
    shown = Contents(heading="Lease", view="#/explore", choices=[Choice(Lease, "mine:Lease", None)])
    mine.write_text(build(shown), encoding="utf-8")
    page = opened(mine)
    assert page.locator(".act").count() == 2
    page.get_by_role("button", name="Search").click()
    page.wait_for_selector(".msg.bad")
    assert "one_holds_it" in page.locator(".msg.bad").inner_text()
    assert walked(page) in (["take(0)", "take(1)"], ["take(1)", "take(0)"])
    for view in ("#/overview", "#/trace", "#/findings"):
        page.evaluate("view => { location.hash = view; }", view)
        page.wait_for_timeout(50)
        assert page.locator("main").inner_text().strip()


def test_shared_bounds_and_undecided_properties_are_shown(opened: Callable[..., Page], tmp_path: Path) -> None:
    drop = "@fault('drop')\ndef drop(self, s): 'It is lost.'; s.when(s.held[0]); s.held[0] = False"
    cls = declared(drop, Lease, name="Dropped")
    one, two = (Choice.of(cls(faults=["drop"], max_faults=n), "lease") for n in (1, 2))
    told: dict[str, object] = {
        "name": "one_holds_it", "status": "not decided", "judgement": "", "findings": [], "counterexample": None
    }  # fmt: skip
    run = {**EMPTY, "faults": two.faults, "max_faults": 2, "properties": [told]}
    path = tmp_path / "shared.html"
    path.write_text(build(Contents("Lease", choices=[one], results=[Result(two, run)])), encoding="utf-8")
    assert "? under all 1" in opened(path, "#/overview", PHONE).locator(".mlist").inner_text()
    page = opened(path, "#/explore/lease.2.any1+drop/drop~1.5")
    assert page.locator(".msg.bad").inner_text() == "The link has parts that are not followed: ~1.5."
    page.locator("#size").select_option(label="2 clients, with drop ×2, at most 2 together")
    page.wait_for_function("location.hash.includes('any2') && location.hash.endsWith('~2/-/')")


def test_a_recorded_walk_names_its_nodes_and_its_unexplained_lines(opened: Callable[..., Page], tmp_path: Path) -> None:
    path = tmp_path / "recorded.html"
    job = Shown(
        "recorded", "A job", Choice(Lease, "mine:Lease", None), ["take(0)", "take(0)"], notes=["1.0 s", "2.0 s"],
        lanes=["alpha", "beta"], set={2: {"held[1]": 1}}, property="one_holds_it",
    )  # fmt: skip
    path.write_text(build(Contents(heading="Job", view="#/trace/0", shown=[job])), encoding="utf-8")
    page = opened(path)
    assert page.locator(".lhead > div").all_inner_texts()[1:3] == ["alpha", "beta"]
    assert page.locator(".lrow.cur").get_attribute("data-at") == "2"  # the step that breaks the property
    assert "the model does not take it" in page.locator(".lrow.cur").inner_text()
    page.keyboard.press("e")
    page.wait_for_selector("#possible")
    assert walked(page) == []
    assert "{0, 1}" in whole_state(page) or whole_state(page).count("yes") == 2


def barriers(page: Page) -> list[str]:
    """The violations that axe-core finds: the rule and where."""
    found: list[str] = page.evaluate(
        """async () => (await axe.run(document, { resultTypes: ['violations'] })).violations
             .flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 160)}`))"""
    )
    return found


@pytest.fixture
def read(opened: Callable[..., Page], report: Path) -> Page:
    """A page that axe-core can read."""
    if not AXE.exists():
        assert not REQUIRED, "page/node_modules has no axe-core: npm ci --prefix page"
        pytest.skip("page/node_modules has no axe-core: npm ci --prefix page")
    page = opened(report)
    page.add_script_tag(path=AXE)
    return page


def test_no_view_has_a_barrier_for_people_with_disabilities(read: Page) -> None:
    walk = "#/explore/rendezvous.TORCH.2-2-2-4/worker_failure/-/exit_finish.0?hide=phase&column=round"
    found: dict[tuple[str, int, str], list[str]] = {}
    for theme in ("light", "dark"):
        assert read.evaluate("document.documentElement.dataset.theme") == theme
        for width in (1280, 400):
            read.set_viewport_size({"width": width, "height": 900})
            for view in (*VIEWS, walk):
                read.evaluate("view => { location.hash = view; }", view)
                read.wait_for_selector(f"main[data-drawn={view.split('/')[1]}]")
                found[theme, width, view] = barriers(read)
        read.get_by_label("Keys", exact=True).first.click()
        found[theme, width, "keys"] = barriers(read)
        read.keyboard.press("Escape")
        read.keyboard.press("t")
    assert {where: what for where, what in found.items() if what} == {}
