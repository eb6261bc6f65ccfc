"""The HTML report in headless Chromium: it renders, is silent, and shows the plans' numbers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import answer, page

pytestmark = pytest.mark.browser

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (CHROMIUM=...)")
    with playwright.sync_playwright() as run:
        found = run.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for staleness in (0, 1):
        found[staleness] = folder / f"{staleness}.html"
        found[staleness].write_text(page(staleness))
    return found


def opened(browser: Any, path: Path, width: int, scheme: str) -> tuple[Any, list[str]]:
    """The page with all its figures drawn, and all that it complained of or asked for."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: said.append(f"error: {error}"))
    tab.on("request", lambda request: said.append(request.url))
    tab.goto(path.as_uri())
    tab.wait_for_selector("body[data-ready]", timeout=60_000)
    for summary in tab.query_selector_all("summary"):
        summary.click()
    tab.wait_for_function(
        "[...document.querySelectorAll('.figure')].every(f => f.querySelector('.main-svg'))"
    )
    tab.wait_for_timeout(200)
    return tab, said


@pytest.mark.parametrize(
    ("width", "scheme", "staleness"),
    [(1280, "light", 0), (1280, "dark", 1), (390, "light", 1), (390, "dark", 0), (980, "light", 1)],
)
def test_it_renders_in_silence_and_nothing_is_cut(
    browser: Any, files: dict[int, Path], width: int, scheme: str, staleness: int
) -> None:
    tab, said = opened(browser, files[staleness], width, scheme)
    assert [line for line in said if not line.startswith(("file:", "data:", "blob:"))] == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    cut = tab.evaluate(
        """[...document.querySelectorAll('body *:not(script):not(pre):not(svg *)')]
        .filter(e => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1)
        .map(e => e.outerHTML.slice(0, 200))"""
    )
    assert cut == []
    # No column is so narrow that its text stands a letter a line.
    squeezed = "[...document.querySelectorAll('td')].filter(cell => cell.offsetHeight > 260).length"
    assert tab.evaluate(squeezed) == 0
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": 718, "height": 900})
    assert tab.evaluate(squeezed) == 0
    tab.emulate_media(media="screen")
    tab.set_viewport_size({"width": width, "height": 900})
    tab.wait_for_timeout(300)
    # Every label of a figure lies within its figure.
    outside = tab.evaluate(
        """[...document.querySelectorAll('.figure')].flatMap(figure => {
          const box = figure.getBoundingClientRect();
          return [...figure.querySelectorAll('svg text')].filter(text => {
            const at = text.getBoundingClientRect();
            return at.width && (at.left < box.left - 2 || at.right > box.right + 2
              || at.top < box.top - 2 || at.bottom > box.bottom + 2);
          }).map(text => figure.id + ': ' + text.textContent);
        })"""
    )
    assert outside == []
    overlapping = tab.evaluate(
        """[...document.querySelectorAll('.figure')].flatMap(figure => {
          const boxes = [...figure.querySelectorAll('.ytick text, .xtick text, .xtitle, .ytitle')]
            .map(text => [text.textContent, text.getBoundingClientRect()])
            .filter(([, at]) => at.width);
          return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) =>
            p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 2
            && q.top < p.bottom - 2).map(([b]) => figure.id + ': ' + a + ' / ' + b));
        })"""
    )
    assert overlapping == []
    tab.context.close()


def test_the_numbers_shown_are_those_of_the_plans(browser: Any, files: dict[int, Path]) -> None:
    tab, _ = opened(browser, files[0], 1280, "light")
    best = answer().plans[0]
    shown = tab.evaluate(
        "[...document.querySelectorAll('#ranking tbody tr:first-child td[data-value]')]"
        ".map(cell => Number(cell.dataset.value))"
    )
    assert best.step_time_s in shown
    bars = tab.evaluate(
        "document.getElementById('memory-1').data.filter(t => t.type === 'bar')"
        ".map(t => Array.from(t.x))"
    )
    totals = [sum(column) * 2**30 for column in zip(*bars, strict=True)]
    wanted = [call.memory_bytes["total"] for call in best.calls.values() if call.memory_bytes]
    assert totals == pytest.approx(wanted, rel=1e-6)
    steps = tab.evaluate("Array.from(document.getElementById('waterfall-1').data[0].x)")
    assert steps[-1] == best.step_time_s
    assert sum(steps[:-1]) == pytest.approx(best.step_time_s)
    tab.context.close()


def test_theme_legend_copy_and_print(browser: Any, files: dict[int, Path]) -> None:
    tab, said = opened(browser, files[0], 1280, "light")
    before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.click("#theme")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != before
    tab.click("#memory-1 + .legend button")
    assert tab.evaluate("document.getElementById('memory-1').data[0].visible") is False
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = tab.query_selector("button[data-copy]")
    button.click()
    tab.wait_for_function("document.querySelector('button[data-copy]').textContent === 'Copied'")
    file = tab.evaluate(
        "document.getElementById(document.querySelector('button[data-copy]').dataset.copy)"
        ".textContent"
    )
    assert tab.evaluate("navigator.clipboard.readText()") == file
    assert len(tab.pdf()) > 10_000
    assert not [line for line in said if line.startswith(("error", "warning"))]
    tab.context.close()
