# SPDX-License-Identifier: Apache-2.0
"""The page of `cairn tree --html` in a real browser: what is seen does not overlap, the keyboard suffices, names never
run, nothing is loaded, and 10^5 branches open in time. `cairn` is $CAIRN_BUILD/bin/cairn."""

import gzip
import os
import pathlib
import random
import subprocess

import pytest

import cairn
from tests.packages.browser import Browser

CAIRN = pathlib.Path(os.environ["CAIRN_BUILD"]) / "bin/cairn"
WIDTHS = {360: 740, 1280: 800, 2560: 1300}
HOSTILE = ["</script><script>document.title='run'</script>", "<img src=x onerror=document.title='run'>",
           "ev\x1b[31mil\n", "turned\u202etxt", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
           "a name of many words " * 10, "w" * 250]


def picture(store: pathlib.Path, option: str, file: pathlib.Path) -> pathlib.Path:
    subprocess.run([CAIRN, "tree", store, option, file, "--force"], check=True, stdout=subprocess.DEVNULL)
    return file


def grow(path: pathlib.Path, branches: int, names: list[str]) -> None:
    """A forest of forks of forks: tokens alone, every branch with some of its own."""
    pick = random.Random(7)
    with cairn.Store(path, create_if_missing=True) as store:
        model = store.register_model(cairn.ModelSpec("tokens"))
        made = []
        for i in range(branches):
            name = names[i] if i < len(names) else f"chat-{i}"
            if i % 200 == 0 or i < 3:
                branch, length = store.create_branch(model, name, durability="memory"), 0
            else:
                above, length = pick.choice(made[-500:])
                length = pick.randint(1, length)
                branch = above.fork(length, name, durability="memory")
            tokens = pick.randint(1, 60)
            branch.append([i % 1000] * tokens, durability="memory")
            made.append((branch, length + tokens))


@pytest.fixture(scope="module")
def browser():
    with Browser() as one:
        yield one


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("small")
    grow(folder / "store", 60, HOSTILE)
    return picture(folder / "store", "--html", folder / "tree.html")


# Pairs of texts whose boxes share more than a pixel. A text that is cut is as wide as its element.
OVERLAPS = """(() => {
  const boxes = [];
  const boxOf = (id) => document.getElementById(id).getBoundingClientRect();
  const pane = boxOf("rows");
  const texts = "h1, #summary, button, input, output, #legend li, .heading, .front, .tail, .meta, #ruler span, "
      + "#details dt, #details dd, #details li";
  for (const element of document.querySelectorAll(texts)) {
    let box = element.getBoundingClientRect();
    if (element.closest("#list")) {
      const top = Math.max(box.top, boxOf("ruler").bottom);
      box = new DOMRect(box.x, top, box.width, Math.min(box.bottom, pane.bottom) - top);
    }
    if (box.width > 0 && box.height > 0 && box.top < innerHeight) boxes.push([element, box]);
  }
  const bad = [];
  for (let i = 0; i < boxes.length; ++i) {
    const [one, a] = boxes[i];
    if (a.left < -1 || a.right > innerWidth + 1) bad.push("outside: " + one.textContent);
    for (let j = i + 1; j < boxes.length; ++j) {
      const [other, b] = boxes[j];
      if (one.contains(other) || other.contains(one)) continue;
      const across = a.left + 1 < b.right && b.left + 1 < a.right, down = a.top + 1 < b.bottom && b.top + 1 < a.bottom;
      if (across && down) bad.push(one.textContent + " | " + other.textContent);
    }
  }
  return bad;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overlaps(browser: Browser, small: pathlib.Path, width: int, scheme: str) -> None:
    browser.resize(width, WIDTHS[width])
    browser.scheme(scheme)
    browser.open(small)
    assert browser.value(OVERLAPS) == []
    assert browser.value("document.querySelectorAll('.row').length") > 10
    for key in ("ArrowDown", "ArrowDown", "u"):
        browser.key(key)
        assert browser.value(OVERLAPS) == []
    colour = browser.value("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)")
    assert browser.problems == []


def test_names_are_shown_and_never_run(browser: Browser, small: pathlib.Path) -> None:
    browser.resize(1280, 2400)
    browser.open(small)
    browser.key("u")
    shown = browser.value("[...document.querySelectorAll('.label')].map(label => label.textContent)")
    assert "<\\x2fscript><script>document.title='run'<\\x2fscript>" in shown
    assert "ev\\x1b[31mil\\x0a" in shown
    assert "turned\\xe2\\x80\\xaetxt" in shown
    assert HOSTILE[4] in shown
    assert browser.value("document.title").endswith(" - cairn tree")
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.problems == []


def test_the_keyboard_suffices(browser: Browser, small: pathlib.Path) -> None:
    browser.resize(1280, 800)
    browser.open(small)
    picked = "document.querySelector('.picked .label')?.textContent ?? null"
    rows = "document.querySelectorAll('[role=treeitem]').length"
    browser.key("End")
    last = browser.value(picked)
    browser.key("Home")
    assert browser.value(picked) not in (None, last)
    browser.key("f")
    few = browser.value(rows)
    browser.key("ArrowRight")
    assert browser.value(rows) >= few
    browser.key("/")
    for letter in "chat-42":
        browser.key(letter)
    assert browser.value("document.getElementById('found').textContent") == "1 of 1"
    browser.key("Enter")
    browser.key("Escape")
    assert browser.value(picked) == "chat-42"
    assert browser.value("document.querySelector('#details h2').textContent") == "chat-42"
    assert browser.value("document.activeElement.id") == "rows"
    browser.key("ArrowLeft")
    above = browser.value(picked)
    assert above not in (None, "chat-42")
    browser.key("0")
    span = browser.value("document.querySelector('#ruler').textContent")
    browser.key("+")
    assert browser.value("document.querySelector('#ruler').textContent") != span
    browser.key("0")
    assert browser.value("document.querySelector('#ruler').textContent") == span
    browser.key("?")
    assert browser.value("document.getElementById('keys').open")
    browser.key("Escape")
    browser.key("Escape")
    assert browser.value(picked) is None
    assert browser.problems == []


def test_without_scripts_there_is_the_svg(browser: Browser, small: pathlib.Path) -> None:
    browser.resize(1280, 800)
    browser.scripts(False)
    try:
        browser.open(small)
        tree = browser.call("DOM.getDocument", depth=-1)
        found = browser.call("DOM.querySelectorAll", nodeId=tree["root"]["nodeId"], selector="noscript svg circle")
        assert len(found["nodeIds"]) == 60
        assert browser.problems == []
    finally:
        browser.scripts(True)


def test_it_prints(browser: Browser, small: pathlib.Path) -> None:
    browser.resize(1280, 800)
    browser.open(small)
    browser.key("u")
    pages = browser.pdf().count(b"/Type /Page\n")
    assert 2 <= pages <= 4  # 60 rows and the head of the page; cut off it would be one.
    browser.settle()
    assert browser.value("document.querySelectorAll('.row').length") < 60


def processor_seconds(browser: Browser) -> float:
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "ThreadTime")


def test_many_branches_open_in_time(browser: Browser, tmp_path: pathlib.Path) -> None:
    branches = 100_000
    grow(tmp_path / "store", branches, [])
    page = picture(tmp_path / "store", "--html", tmp_path / "tree.html")
    names = sum(len(f"chat-{i}") for i in range(branches))
    compressed = len(gzip.compress(page.read_bytes()))
    assert compressed <= 1_000_000 + 40 * branches + names
    browser.resize(1280, 800)
    # The time of the processor: that of a clock is other programs' as well.
    browser.call("Performance.enable", timeDomain="threadTicks")
    before = processor_seconds(browser)
    browser.open(page)
    seconds = processor_seconds(browser) - before
    assert browser.value("document.querySelectorAll('.row').length") > 10
    assert 0 < seconds <= 2
    print(f"{branches} branches: opened in {seconds:.2f} s, {compressed} bytes compressed, {names} of names")
    browser.key("u")
    browser.key("End")
    assert browser.value("document.querySelectorAll('.row.picked').length") == 1
    assert browser.problems == []
    svg = picture(tmp_path / "store", "--svg", tmp_path / "tree.svg").read_text()
    assert sum(svg.count(f"<{shape} ") for shape in ("path", "circle", "text")) <= 2000
