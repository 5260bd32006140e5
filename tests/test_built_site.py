"""The built site: links, console, filter, sort, card, search and accessibility, in headless Chromium."""

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[1]


class Reader(HTMLParser):
    """The files that a page loads, what it links to, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.linked, self.tags, self.anchors = [], [], set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.add(tag)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag in ("script", "img", "iframe", "source") or (tag == "link" and values.get("rel") == "stylesheet"):
            self.loaded += [values[key] for key in ("src", "href") if values.get(key)]
        if tag == "a" and values.get("href"):
            self.linked.append(values["href"])


@pytest.mark.slow
@pytest.mark.skipif("SITE" not in os.environ, reason="make docs builds the site and reads it")
def test_the_built_site_is_whole(tmp_path):
    """With cards. `mkdocs build --strict` has ended without a warning. AXE is the file axe.min.js of axe-core."""
    site = Path(os.environ["SITE"])
    shutil.copytree(site, tmp_path / "site")  # the browser reads changed pages
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 60
    readers = {page: Reader(page.read_text(encoding="utf-8")) for page in pages}
    for page, reader in readers.items():
        if page.name == "404.html":
            continue  # its links assume a site at the root
        assert [address for address in reader.loaded if "//" in address and not address.startswith("data:")] == [], page
        assert all(re.fullmatch("[a-z][a-z0-9]*", tag) for tag in reader.tags), f"{page}: text that is taken for a tag"
        for target in reader.linked:
            assert broken(page, target, readers) is None, f"{page}: {target}"
    if shutil.which("chromium"):
        check_in_browser(tmp_path / "site")
    if shutil.which("chromium") and "AXE" in os.environ:
        check_accessibility(tmp_path / "site", Path(os.environ["AXE"]))


def broken(page, target, readers):
    """The file or the anchor that a link within the site lacks; None for a link that leads somewhere."""
    path, _, anchor = target.partition("#")
    if "//" in target or target.startswith("mailto:"):
        return None
    there = Path(os.path.normpath(page.parent / unquote(path))) if path else page
    if not there.exists():
        return path
    is_page = anchor and there in readers
    return anchor if is_page and unquote(anchor) not in {*readers[there].anchors, "__skip"} else None


def test_a_link_without_its_file_or_anchor_is_broken(tmp_path):
    page, other = tmp_path / "a.html", tmp_path / "b c.html"
    readers = {page: Reader('<h1 id="top"></h1>'), other: Reader('<p id="x"></p>')}
    page.touch(), other.touch()
    targets = ["#top", "b%20c.html#x", "https://a.b/#c", "#none", "b%20c.html#top", "none.html"]
    assert [broken(page, target, readers) for target in targets] == [None, None, None, "none", "top", "none.html"]


def in_browser(page, script=""):
    """The page as a file without a network, after a script that acts as a reader; no script of it fails."""
    copy = page.with_name(f"read-{page.name}")
    added = f"<script>addEventListener('load', () => {{ {script} }})</script></body>"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", added), encoding="utf-8")
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=9000")
    words = ["chromium", *flags, "--dump-dom", copy.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line and "rror" in line], done.stderr
    return done.stdout


READ = (
    *("index", "findings", "questions", "models/index", "models/vanilla", "tasks/lra", "notebooks/lavo"),
    *("records", "figures", "tables", "results/tables/lavo/t11", "results/tables/union/noncausal"),
    *("results/tables/leaderboard", "results/tables/probes", "results/tables/columns", "results/tables/lavo/t1"),
)
WIDTHS = (1400, 390)  # of a screen and of a phone
AUDIT = """setTimeout(async () => {
  const seen = [], { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) seen.push(`the page is ${scrollWidth - clientWidth} px too wide`);
  const still = document.createElement("style"); // colours change at once
  still.textContent = "* { transition: none !important }";
  document.head.append(still);
  for (const scheme of ["default", "slate"]) {
    document.body.dataset.mdColorScheme = scheme;
    const { violations } = await axe.run(document, { preload: false, resultTypes: ["violations"] });
    seen.push(...violations.map((rule) => `${scheme} ${rule.id} ${rule.nodes[0].target}`));
  }
  parent.postMessage(`${innerWidth}: ${seen.join("; ") || "nothing"}`, "*");
}, 2000)"""


def check_accessibility(site, axe):
    """axe-core finds nothing, light and dark, at both widths, and no page is wider than its window."""
    shutil.copy(axe, site / "assets/axe.min.js")
    for name in READ:
        page = site / f"{name}.html"
        loaded = f"addEventListener('load', () => {{ {AUDIT} }})"
        added = f'<script src="{(site / "assets/axe.min.js").as_uri()}"></script><script>{loaded}</script></body>'
        page.write_text(page.read_text(encoding="utf-8").replace("</body>", added), encoding="utf-8")
        frames = (f'<iframe src="{page.name}" width="{width}" height="900"></iframe>' for width in WIDTHS)
        said = "addEventListener('message', (event) => { document.title += `${event.data}|` })"
        around = page.with_name(f"around-{page.name}")
        around.write_text(f"<title></title><body><script>{said}</script>{''.join(frames)}</body>", encoding="utf-8")
        title = re.search("<title>(.*?)</title>", in_browser(around))[1]
        assert sorted(filter(None, title.split("|"))) == ["1400: nothing", "390: nothing"], f"{name}: {title}"


def check_in_browser(site):
    board, typed = site / "results/tables/leaderboard.html", "dispatchEvent(new Event('input', {bubbles: true}))"
    all_rows = re.search(r"<output>(\d+) of \1 rows</output>", in_browser(board))[1]
    latte = f"const i = document.querySelector('.filters input'); i.value = 'latte'; i.{typed}"
    assert 0 < int(re.search(rf"<output>(\d+) of {all_rows} rows", in_browser(board, latte))[1]) < int(all_rows)
    assert 'aria-sort="' in in_browser(board, "document.querySelector('button.sort').click()")
    card = in_browser(board, "document.querySelector('button.number').click()").partition('id="card"')[2]
    assert "metric: acc" in card and "python run.py -m model=" in card and 'aria-label="record of seed 1"' in card
    row = "const { tHead, tBodies } = document.querySelector('table[data-board]');"
    index = "[...tHead.rows[0].cells].findIndex((head) => head.textContent.includes('training step'))"
    cost = in_browser(board, f"{row} tBodies[0].rows[0].cells[{index}].querySelector('button').click()")
    assert "python run.py do=bench model=" in cost.partition('id="card"')[2]
    box = "const box = [...document.querySelectorAll('.md-typeset__scrollwrap')].at(-1); box.scrollLeft = 200;"
    moved = "box.querySelector('td').getBoundingClientRect().left - box.getBoundingClientRect().left"
    wide = in_browser(board, f"setTimeout(() => {{ {box} document.title = `moved ${{{moved}}}` }}, 1000)")
    assert re.search("<title>moved 0</title>", wide) and " data-more" in wide, "a name stays, and an edge fades"
    lavo = f"const i = document.querySelector('#all-records input'); i.value = 'lavo'; i.{typed}"
    listed = in_browser(site / "records.html", f"setTimeout(() => {{ {lavo} }}, 3000)")  # the list is there by then
    shown, every = re.search(r"<output>(\d+) of (\d+) records, page 1 of", listed).groups()
    assert 0 < int(shown) < int(every)
    search = "const i = document.querySelector('.md-search__input'); i.focus(); i.value = 'softmax';"
    results = in_browser(board, f"{search} i.dispatchEvent(new Event('keyup', {{bubbles: true}}))")
    assert "models/vanilla.html" in results.partition("md-search-result__list")[2]
