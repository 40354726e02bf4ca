"""A page in TypeScript, by types made from the server's OpenAPI, on another origin, in a browser.

    python tests/browser/typescript.py MODEL

Needs Chromium and npm, which fetches `openapi-typescript` and `typescript` for this test alone.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

from pages import WAIT, chromium
from playwright.sync_api import sync_playwright
from server import serving

import rerank

TOOLS = ("openapi-typescript@7.13.0", "typescript@5")
STRICT = ("--strict", "--target", "es2022", "--lib", "es2022,dom", "--outDir", ".")
QUESTION = "how do I do this"


def main() -> None:
    """Make the types, compile the page, open it; exit code 1 where one of these fails."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("model", type=Path)
    model = p.parse_args().model
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        handler = partial(SimpleHTTPRequestHandler, directory=work)
        with HTTPServer(("127.0.0.1", 0), handler) as http:
            origin = f"http://127.0.0.1:{http.server_port}"
            threading.Thread(target=http.serve_forever, daemon=True).start()
            with serving(model, allow_origin=origin) as started:
                compile_page(started.url, work)
                expected = rerank.load(model).search(QUESTION)
                shown = opened(f"{origin}/page.html?server={started.url}&q={QUESTION}")
                refused = opened(f"{origin}/page.html?server={started.url}&q=")
            http.shutdown()
    assert expected.top
    assert shown.endswith(f"{expected.top.doc_id} {expected.confidence}"), shown
    assert refused == "refused: 'query' is empty", refused
    print(f"compiled, and asked from {origin}: {shown}; {refused}")


def compile_page(url: str, work: Path) -> None:
    """The types of the server's routes, and the page compiled with them, without a warning."""
    with urllib.request.urlopen(f"{url}/openapi.json") as answer:
        (work / "openapi.json").write_bytes(answer.read())
    shutil.copy(Path(__file__).with_name("page.ts"), work)
    (work / "page.html").write_text(
        '<body>asking</body><script type="module" src="page.js"></script>'
    )
    run = partial(subprocess.run, cwd=work, check=True, stdout=sys.stderr)
    run(["npm", "install", "--no-audit", "--no-fund", "--prefix", ".", *TOOLS])
    made = ["openapi.json", "-o", "api.ts", "--default-non-nullable=false"]
    run(["node_modules/.bin/openapi-typescript", *made])
    run(["node_modules/.bin/tsc", "page.ts", "api.ts", "--module", "es2022", *STRICT])


def opened(address: str) -> str:
    """What the page shows at last."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(address)
        page.wait_for_function("document.body.textContent != 'asking'", timeout=WAIT)
        return str(page.inner_text("body"))


if __name__ == "__main__":
    main()
