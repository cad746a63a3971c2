"""How the dossier looks where there is a browser: at a desk and on a phone, light and dark, on paper."""

import json
import re
import shutil
import subprocess

import pytest

from private_mcmc import Target
from private_mcmc.dossier.page import page
from private_mcmc.report.drawing import figure
from private_mcmc.report.html import STYLE
from tests.dossier.studies import PREDICTED, books_in, study_of, with_long_names

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("main *")].filter(e => !e.closest(".wide, pre, svg, details")
    && e.getBoundingClientRect().right > innerWidth + 1).length;
  const scrolled = [...document.querySelectorAll(".wide")].filter(e => !e.closest("details")
    && e.scrollWidth > e.clientWidth + 1).length;
  const shown = [...document.querySelectorAll("svg text")].filter(e => e.getBoundingClientRect().width > 0);
  const cut = shown.filter(e => {
    const ink = e.getBoundingClientRect(), sheet = e.closest("svg").getBoundingClientRect();
    return ink.right > sheet.right + 1 || ink.left < sheet.left - 1 || ink.bottom > sheet.bottom + 1;
  }).length;
  const drawn = [...document.querySelectorAll("svg")].filter(e => e.getBoundingClientRect().width > 0);
  const ink = getComputedStyle(document.querySelector("h1")).color;
  const found = JSON.stringify({page: document.documentElement.scrollWidth, window: innerWidth, wide,
    scrolled, cut, texts: shown.length,
    drawn: drawn.filter(e => !e.closest("details")).length, ink,
    ground: getComputedStyle(document.body).backgroundColor});
  if (parent === window) document.title = found; else parent.postMessage(found, "*");
});</script></body>"""
# Browsers without a screen have no window narrower than 500 points: a phone is a frame.
PHONE = """<title></title><script>onmessage = event => document.title = event.data</script>
<iframe src="measured.html" width="390" height="3000" style="border:0"></iframe>"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("look")
    for name, study in (("", study_of(books_in(folder))), ("long-", with_long_names())):
        text = study.report().to_html()
        (folder / f"{name}page.html").write_text(text)
        (folder / f"{name}measured.html").write_text(text.replace("</body>", MEASURE))
        (folder / f"{name}phone.html").write_text(PHONE.replace("measured", f"{name}measured"))
    return folder


def browser(place, *arguments):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={place / 'browser'}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


@pytest.mark.long
def test_the_page_compares_what_was_predicted_of_each_coefficient_with_what_was_released(place):
    text = re.sub(r"<[^>]+>", " ", (place / "page.html").read_text())
    row = r"Intercept\s+0\.2\s+0\.1\s+0\.22\s+0\.1\d?\s"
    assert re.search(r"sd released\s+" + row, text) and re.search(r"not released\s+0\.03.*?—", text)


def test_nothing_is_fetched_and_nothing_runs(place):
    text = (place / "page.html").read_text()
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\((?!#)|(?:src|href)=\"(?!#)", text)


@pytest.mark.long
def test_the_first_thing_is_green_or_amber_and_results_come_before_theorems(place):
    text = (place / "page.html").read_text()
    body = text[text.index("<h1>") :]
    assert body.index('class="verdict good"') < body.index("Results") < body.index("<details>")
    assert "not private" not in body[: body.index("Results")].lower()
    amber = page(study_of(target=Target(12.0, 1e-2))).to_html()
    assert 'class="verdict unsure"' in amber and amber.count("<li>") > 6
    seeded = page(study_of(randomness={"source": "caller"})).to_html()
    assert 'class="verdict bad"' in seeded and "Not private" in seeded


def test_every_colour_has_a_value_in_the_light_in_the_dark_and_on_paper():
    names = set(re.findall(r"var\(--([\w-]+)\)", STYLE)) | {"c0", "c1", "c2", "c3", "c4"}
    light, dark, paper = (
        re.search(start + r"\s*\.pm\{([^}]*)", STYLE)[1] for start in ("", r"dark\)\{", r"print\{")
    )
    for scheme in (light, dark, paper):
        assert names - {"ground"} <= set(re.findall(r"--([\w-]+):", scheme))


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="no browser here")
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("measured", 1280, 1), ("phone", 390, 0), ("long-measured", 1280, 0), ("long-phone", 390, 1)],
)
def test_nothing_is_wider_than_its_window_in_the_light_or_in_the_dark(place, name, width, scheme):
    wanted = ("--window-size=1280,2000", f"--blink-settings=preferredColorScheme={scheme}")
    waiting = ("--virtual-time-budget=10000", "--dump-dom", (place / f"{name}.html").as_uri())
    found = json.loads(re.search(r"<title>(.*?)</title>", browser(place, *wanted, *waiting))[1])
    assert found["page"] <= found["window"] == width and found["wide"] == found["scrolled"] == 0
    assert found["cut"] == 0 < found["texts"]
    assert found["drawn"] == 2
    dark = sum(map(int, re.findall(r"\d+", found["ground"])[:3])) < 150
    assert dark == (scheme == 0)
    assert (sum(map(int, re.findall(r"\d+", found["ink"])[:3])) > 400) == dark


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser here")
def test_a_page_to_sign_has_two_to_four_sheets(place):
    browser(
        place,
        "--no-pdf-header-footer",
        f"--print-to-pdf={place / 'page.pdf'}",
        (place / "page.html").as_uri(),
    )
    sheets = len(re.findall(rb"/Type\s*/Page[^s]", (place / "page.pdf").read_bytes()))
    assert 2 <= sheets <= 4


@pytest.mark.slow
def test_a_forest_has_room_for_every_name(place):
    drawn = figure(with_long_names().answers().forest(), size=(3.7, 3.5))
    assert drawn.get_size_inches()[1] > 8
    for label in drawn.axes[0].get_yticklabels():
        assert all(len(line) <= 18 for line in label.get_text().splitlines())


def test_a_wide_posterior_is_said_to_be_wide_beside_the_results():
    usual, wide = (page(study_of(expected=PREDICTED | {"rms": rms})).to_html() for rms in (0.5, 4.4))
    assert "about 1.1 times as wide" in usual and "Most of what they show is noise" not in usual
    body = wide[: wide.index("What can be learnt about one person")]
    assert "about 4.5 times as wide. Most of what they show is noise" in body
    assert "times as wide" not in page(study_of(predicted=None, expected=None)).to_html()
