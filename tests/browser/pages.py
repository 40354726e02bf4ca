"""The pages in a real browser: what a person does on each, screenshots, and what axe finds.

    make browser    or    python tests/browser/pages.py MODEL LABELLED_SET --out work/pages

Asks a question with an answer and one without, opens a source, says that the answer is wrong and
finds that among the exported labels, labels a question by keys, and opens a passage that holds a
script in its document, which holds more of them. Fails where something is not there, or axe finds a
serious fault. Needs Chromium.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from server import serving

import rerank
from rerank import LabelledSet
from rerank.jobs.update import init
from rerank.journal.server import MOVES
from rerank.labelling.judgements import LabelConfig
from rerank.labelling.server import LabelSessions
from rerank.labelling.session import Session

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
WAIT = 120_000  # milliseconds
WIDTHS = (1200, 400)
SERIOUS = ("serious", "critical")
FAR = "who won the football match between Ghana and Uruguay in 2010"  # in no documentation
PASSAGES, FOUND = 12, 7  # of the hostile document, and the one that is asked for
HOSTILE = (
    "<script>document.title = 'broken'</script><img src=x onerror=\"document.title='broken'\">"
)


def main() -> None:
    """Try all pages and print what was found; exit code 1 where axe found a serious fault."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("model", type=Path)
    p.add_argument("labelled", type=Path, help="labelled set, from which questions are taken")
    p.add_argument("--out", type=Path, default=Path("work/pages"), help="folder of screenshots")
    o = p.parse_args()
    o.out.mkdir(parents=True, exist_ok=True)
    found = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as temporary:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        work = Path(temporary)
        with of_model(o.model, o.labelled, work) as (url, question):
            try_pages(new_page(browser), url, question)
            found = look(browser, url, question, o.out)
        with hostile(work) as url:
            try_document(new_page(browser), url)
            found += look_at(browser, o.out, "document", lambda page: open_document(page, url))
        browser.close()
    found.sort(key=lambda line: not line.startswith(SERIOUS))  # the worst first
    print("\n".join(found) or "axe: nothing")
    sys.exit(any(line.startswith(SERIOUS) for line in found))


def chromium() -> str:
    """The browser of this machine."""
    known = filter(None, map(shutil.which, CHROMIUM))
    try:
        return next(known)
    except StopIteration:
        sys.exit(f"expected one of {', '.join(CHROMIUM)} on the PATH; apt-get install chromium")


@contextmanager
def of_model(model: Path, labelled: Path, work: Path) -> Iterator[tuple[str, str]]:
    """A server of the model with a journal and labels, and a question that it is sure of."""
    data, loaded = LabelledSet.read(labelled), rerank.load(model)
    queries = [data.queries[i] for i in (data.splits.get("test") or data.queries)][:40]
    sure = max(loaded.assess(queries), key=lambda answer: answer.confidence)
    config = LabelConfig(count=5, depth=2)
    Session(loaded, work / "labels", config).prepare(queries)
    labels, journal = LabelSessions(work / "labels", config), f"sqlite:///{work}/journal.db"
    with serving(model, labels=labels, journal=journal, work=model.parent) as started:
        yield started.url, sure.ranking.query.text


@contextmanager
def hostile(work: Path) -> Iterator[str]:
    """A server of one document, each passage of which holds a script, in its heading too."""
    corpus = work / "hostile"
    corpus.mkdir()
    texts = [f"Passage {i}. It holds a script: {HOSTILE}" for i in range(PASSAGES)]
    texts[FOUND] = f"What the hostile passage holds is a script: {HOSTILE}"
    with (corpus / "corpus.jsonl").open("w") as lines:
        for i, text in enumerate(texts):
            place = {"document": "hostile.md", "heading": f"{HOSTILE} {i // 3}", "position": i}
            row = {"_id": str(i), "title": "", "text": text, "metadata": place}
            lines.write(json.dumps(row) + "\n")
    init(corpus, work / "hostile-model", work=work)
    with serving(work / "hostile-model", journal=f"sqlite:///{work}/hostile.db") as started:
        yield started.url


def new_page(browser: Browser, width: int = 1200, scheme: Any = "light") -> Page:
    """A page that waits long enough for a slow machine."""
    page = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    ).new_page()
    page.set_default_timeout(WAIT)
    return page


def try_pages(page: Page, url: str, question: str) -> None:
    """Do what people do, and check what they would see, and that the console has no error."""
    errors: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    ask(page, url, FAR)
    print(f"without an answer: {page.inner_text('#badge')}; {page.inner_text('#answer')[:80]}")
    assert page.locator("#banner").count() == 1, "no banner over an answer nobody should trust"
    ask(page, url, question)
    print(f"with an answer: {page.inner_text('#badge')}; {page.locator('.source').count()} sources")
    open_source(page)
    page.click("button:text-is('Wrong')")
    page.wait_for_selector("text=Thank you")
    rows = page.request.get(f"{url}/v1/journal/labels").text().splitlines()
    assert any(json.loads(row).get("right") is False for row in rows), "the label is not exported"
    page.goto(f"{url}/reliability")
    page.locator("input[type=range]").press("ArrowRight")
    assert "MLflow run" in page.inner_text("[aria-label='What the model was made from']")
    page.goto(f"{url}/watch")
    page.wait_for_selector("h2")
    assert "No alarm after 1 label:" in page.inner_text("#found"), "the judgement is not tested"
    page.click("text=The features that moved most")
    assert page.locator("[aria-label='Features'] tbody tr").count() == MOVES, "no drift alarm"
    label(page, url)
    assert not errors, errors


def ask(page: Page, url: str, question: str) -> None:
    """Ask, by the keyboard alone."""
    page.goto(url)
    page.fill("#question", question)
    page.press("#question", "Enter")
    page.wait_for_selector("#badge")


def open_source(page: Page) -> None:
    """Open the first source."""
    page.click(".source summary")
    assert page.locator(".source p").first.is_visible()


def open_document(page: Page, url: str) -> None:
    """Open the passage that is asked for in its document, by the keyboard."""
    ask(page, url, "what does the hostile passage hold")
    page.focus(".source summary")
    page.keyboard.press("Enter")
    page.wait_for_selector(".document .here")
    assert page.inner_text("#badge") == "NOT CALIBRATED"
    assert page.inner_text("#banner").startswith("Advisory only - "), "no banner without labels"


def try_document(page: Page, url: str) -> None:
    """All passages are there in order, as text; the one found is in view, its sentence marked."""
    open_document(page, url)
    shown = page.locator(".document p").all_inner_texts()
    assert len(shown) == PASSAGES, f"{len(shown)} passages of the document are shown"
    assert all(HOSTILE in text for text in shown), "a passage is not shown as it is"
    assert page.locator(".document h3").count() == PASSAGES / 3, "a heading is missing or repeated"
    here = page.locator(".here p")
    assert here.inner_text() == shown[FOUND], "another passage is highlighted"
    assert here.locator("mark").count(), "no sentence is marked"
    inside = "here => here.parentNode.scrollTop <= here.offsetTop && here.offsetTop <= "
    inside += "here.parentNode.scrollTop + here.parentNode.clientHeight"
    assert page.locator(".here").evaluate(inside), "the passage is out of view"
    assert page.title() == "Ask - calibrated-rerank", "a script of a passage has run"
    page.goto(f"{url}/watch")
    page.wait_for_selector("#queue li")
    assert "The model is not calibrated" in page.inner_text(".banner")
    assert page.title() == "Watch - calibrated-rerank", "a script of a passage has run"


def label(page: Page, url: str) -> None:
    """Judge one question by keys, and take the last word back."""
    page.goto(f"{url}/label")
    page.fill("#annotator", "ann")
    page.press("#annotator", "Enter")
    page.wait_for_selector("#asked")
    page.keyboard.press("n")
    page.wait_for_selector("#count:text-matches('^1 of')")
    page.keyboard.down("u")
    page.wait_for_selector("#count:text-matches('^0 of')")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    for key in ("u", "n", "n"):
        page.keyboard.down(key)  # the second time, and the third: a key that is held
    page.wait_for_selector("#count:text-matches('^1 of')")
    page.wait_for_timeout(200)
    assert sent == ["POST"], "a key that is held judges again and again"
    for key in ("n", "u"):
        page.keyboard.up(key)
    page.keyboard.press("u")  # as it was, for the next look
    page.wait_for_selector("#count:text-matches('^0 of')")


def look(browser: Browser, url: str, question: str, out: Path) -> list[str]:
    """Screenshots of all pages of the model, and axe's faults."""

    def asked(page: Page) -> None:
        ask(page, url, question)
        open_source(page)

    def opened(name: str) -> Callable[[Page], object]:
        return lambda page: (page.goto(f"{url}/{name}"), page.wait_for_selector("h2"))

    def watched(page: Page) -> None:
        opened("watch")(page)
        page.click("text=The features that moved most")

    pages = {
        "ask": asked,
        "reliability": opened("reliability"),
        "watch": watched,
        "label": lambda page: label(page, url),
    }
    return [fault for name, show in pages.items() for fault in look_at(browser, out, name, show)]


def look_at(browser: Browser, out: Path, name: str, show: Callable[[Page], object]) -> list[str]:
    """Screenshots of one page in each width and scheme, and axe's faults."""
    faults = set()
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            page = new_page(browser, width, scheme)
            show(page)
            page.screenshot(path=out / f"{name}-{width}-{scheme}.png", full_page=True)
            for fault in Axe().run(page).response["violations"]:
                where = fault["nodes"][0]["html"][:100]
                faults.add(f"{fault['impact']}: {name} {scheme}: {fault['help']}: {where}")
    return sorted(faults)


if __name__ == "__main__":
    main()
