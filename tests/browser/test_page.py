"""The page in a real browser: search, explanation, steering, hostile documents, the keyboard."""

import contextlib
import re
import shutil
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error, Locator, Page, Request, Route, expect, sync_playwright

from lexicept.explanation.contributions import name_of
from lexicept.fields.filters import parse as parse_filter
from lexicept.index.feedback import like, with_feedback
from lexicept.index.reader import IndexReader
from lexicept.queries.syntax import ParsedQuery
from support.served import HOSTILE, serving

CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
QUERY = "bade kilo muki"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def index(served_index):
    return IndexReader.open(served_index)


@pytest.fixture(scope="module")
def address(served_index):
    with serving(served_index) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, address):
    """An empty page. Whatever a script or another machine's address would do fails the test."""
    page = browser.new_page()
    unwanted: list[str] = []
    page.on("dialog", lambda dialog: (unwanted.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: unwanted.append(str(error)))
    page.on("console", lambda message: unwanted.append(message.text))
    page.on(
        "request",
        lambda request: None if request.url.startswith(address) else unwanted.append(request.url),
    )
    page.goto(address)
    yield page
    page.close()
    assert unwanted == []


@pytest.fixture
def failing(browser, address):
    """An empty page of a server that fails, which the console reports."""
    page = browser.new_page()
    page.goto(address)
    yield page
    page.close()


def search(page: Page, query: str) -> None:
    page.get_by_label("Search for").fill(query)
    page.keyboard.press("Enter")


def open_terms(page: Page) -> None:
    page.locator("#terms summary").click()


def ranking(page: Page) -> list[str]:
    """The ids of the results that are shown, when they are those of the last search."""
    expect(page.locator("#results")).not_to_have_attribute("aria-busy", "true")
    results = page.locator(".result")
    expect(results.first).to_be_visible()
    return results.evaluate_all("results => results.map((result) => result.dataset.id)")


def explain(page: Page, number: int = 0) -> Locator:
    """Open the explanation of a result; returns the result."""
    ranking(page)
    result = page.locator(".result").nth(number)
    result.get_by_role("button", name="Why").click()
    expect(result.locator(".parts")).to_be_visible()
    return result


def violations(page: Page) -> list[str]:
    """What axe finds, on the page as it is shown: rule and elements."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {[node['html'][:200] for node in one['nodes']]}" for one in found]


def status(page: Page) -> Locator:
    return page.get_by_role("status").first


def filtered_ids(index: IndexReader, text: str) -> list[str]:
    query = ParsedQuery("kilo", filter=parse_filter(text))
    return [hit.id for hit in index.search([query])[0]]


def test_search_shows_results_and_why(page, index):
    search(page, QUERY)
    assert ranking(page) == [hit.id for hit in index.search([QUERY])[0]]
    expect(status(page)).to_have_text(f"{index.matching(QUERY).count} documents.")
    first = explain(page)
    why = index.explain(QUERY, index.search([QUERY])[0][0].id)
    words = sum(part.score for part in why.contributions if part.vocabulary == "words")
    expect(first.locator(".keys")).to_contain_text(f"words {round(100 * words / why.score)} %")
    idea = why.ideas[0]
    expect(first.locator(".parts li").first).to_contain_text(idea.name)
    largest = idea.parts[0]
    (span, *_) = largest.document_spans
    marked = first.locator(f'mark[data-terms~="{largest.vocabulary}:{largest.dimension}"]')
    expect(marked.first).to_have_text(why.content[span.start : span.end])
    expect(marked.first).not_to_have_class(re.compile("active"))
    first.locator(".parts li").first.hover()
    expect(marked.first).to_have_class(re.compile("active"))


def test_steering_by_the_keyboard_changes_the_ranking_and_goes_back(page, index):
    expect(page.get_by_label("Search for")).to_be_focused()
    page.keyboard.type(QUERY)
    page.keyboard.press("Enter")
    before = ranking(page)
    tab_to(page, "#terms summary", 10)
    page.keyboard.press("Enter")
    tab_to(page, "[aria-label='Remove: word bade']", 30)
    page.keyboard.press("Enter")
    dimension = next(t.dimension for t in index.query_terms(QUERY) if t.term == "bade")
    steered = index.search([ParsedQuery(QUERY, steering={("words", dimension): 0.0})])[0]
    expect(status(page)).to_contain_text("steering moved")
    assert ranking(page) == [hit.id for hit in steered] != before
    expect(page.locator(".moved").first).to_be_visible()
    assert f"steer=words%3A{dimension}%3A0" in page.url
    # The button that was pressed still has the focus, and now restores.
    expect(page.get_by_role("button", name="Restore: word bade")).to_be_focused()
    shared = page.url
    page.go_back()
    expect(page.locator(".moved")).to_have_count(0)
    assert ranking(page) == before
    page.goto(shared)
    assert ranking(page) == [hit.id for hit in steered]
    open_terms(page)
    page.get_by_role("button", name="Undo all steering").click()
    expect(page.locator(".moved")).to_have_count(0)
    assert ranking(page) == before


def test_marks_are_shown_where_no_spaces_are(page):
    span = {"start": 1500, "end": 1502, "share": 1.0}
    part = {"vocabulary": "words", "dimension": 0, "term": "x", "score": 1.0, "query_spans": []}
    why = {
        "title": "",
        "text": QUERY,
        "content": "漢字" * 1000,
        "score": 1.0,
        "prior": 0.0,
        "similarity": 0.0,
        "similar_words": [],
    }
    why["contributions"] = [{**part, "document_spans": [span]}]
    page.route("**/explain?*", lambda route: route.fulfill(json=why))
    search(page, QUERY)
    expect(explain(page).locator("mark")).to_have_text("漢字")


def test_a_result_that_can_not_be_explained_leaves_the_others(failing, index):
    hits = index.search([QUERY])[0]
    gone = {"detail": "this index has no document of that id"}
    explanation = re.compile(rf"/explain\?.*document_id={hits[1].id}(&|$)")
    failing.route(explanation, lambda route: route.fulfill(status=404, json=gone))
    search(failing, QUERY)
    ranking(failing)
    failing.get_by_role("button", name="Explain all").click()
    cards = failing.locator(".result")
    expect(failing.locator(".result .parts")).to_have_count(len(hits) - 1)
    expect(cards).to_have_count(len(hits))
    expect(cards.nth(1).locator(".why")).to_have_text(f"Not explained: {gone['detail']}")
    expect(failing.get_by_role("alert")).to_be_hidden()


def test_a_query_that_is_too_long_and_a_server_that_is_gone(failing):
    search(failing, "kilo " * 1_000)
    expect(failing.get_by_role("alert")).to_contain_text("at most 4000 characters")
    failing.route("**/search?*", lambda route: route.abort())
    search(failing, QUERY)
    expect(failing.get_by_role("alert")).to_contain_text("The server does not answer")
    failing.unroute("**/search?*")
    failing.get_by_role("button", name="Try again").click()
    assert ranking(failing)


def test_a_concept_shows_its_documents_and_is_steered(page, index, address):
    search(page, QUERY)
    ranking(page)
    open_terms(page)
    concept = page.locator("#terms button.term").first
    label = concept.inner_text()
    concept.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Documents")
    number = int(re.search(r"concept=(\d+)", page.url)[1])
    name = index.vocabularies[1].terms[number]
    expect(dialog.get_by_role("heading", name=name)).to_be_focused()
    assert label.endswith(name)  # without a name, its number after the word of the query
    dialog.get_by_role("button", name="Raise").click()
    expect(dialog).to_contain_text("× 2")
    assert f"steer=concepts%3A{number}%3A2" in page.url
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(concept).to_be_focused()
    raised = index.search([ParsedQuery(QUERY, steering={("concepts", number): 2.0})])[0]
    assert ranking(page) == [hit.id for hit in raised]
    page.goto(f"{address}/?q={QUERY}&concept={number}")
    expect(page.locator("#concept-steering")).to_contain_text("In your query")


def test_pages_of_results(page, index):
    page.get_by_label("Words", exact=True).check()
    search(page, "number:0..29")
    expect(page.get_by_role("status").first).to_have_text("30 documents.")
    assert ranking(page) == [f"d{n}" for n in range(10)]
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("status").first).to_have_text("11 to 20 of 30 documents.")
    assert ranking(page) == [f"d{n}" for n in range(10, 20)]
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    assert "page=3" in page.url
    page.go_back()
    expect(page.locator("#pages span")).to_have_text("Page 2 of 3")


def test_a_result_opens_its_document_with_all_that_fired(page, index):
    search(page, QUERY)
    ranking(page)
    (hit, *_) = index.search([QUERY])[0]
    page.locator(".result .open").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".parts")).to_be_visible()
    expect(dialog.locator(".excerpt")).to_have_text(hit.text)
    fired = {
        f"{part.vocabulary}:{part.dimension}"
        for part in index.explain(QUERY, hit.id).contributions
        if part.document_spans
    }
    marks = dialog.locator(".excerpt mark").evaluate_all(
        "marks => marks.map((m) => m.dataset.terms)"
    )
    assert {term for terms in marks for term in terms.split(" ")} == fired
    expect(dialog.locator(".legend mark")).to_have_count(4)
    assert f"document={hit.id}" in page.url
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    # A dialog is hidden before its event "close" makes a step of the history.
    expect(page).not_to_have_url(re.compile("document="))
    page.go_back()
    dialog.get_by_role("button", name="Documents like this").click()
    expect(dialog).to_be_hidden()
    assert ranking(page) == [one.id for one in index.search([like(index, hit.id)])[0]]


def test_one_click_adds_what_a_result_is_about(page, index):
    search(page, QUERY)
    before = ranking(page)
    explain(page, 1).locator(".mark").click()
    chips = page.locator("#added .chip")
    expect(chips.first).to_be_visible()
    fed = with_feedback(index, ParsedQuery(QUERY), [before[1]])
    expect(chips).to_have_count(8)  # the largest
    page.get_by_role("button", name=f"Show all {len(fed.added)}").click()
    expect(chips).to_have_count(len(fed.added))
    assert ranking(page) == [hit.id for hit in index.search([fed])[0]]
    explain(page, ranking(page).index(before[1]))
    expect(page.locator('.mark[aria-pressed="true"]')).to_have_attribute("data-id", before[1])
    chips.first.get_by_role("button", name="Take away").click()
    expect(chips).to_have_count(len(fed.added) - 1)
    page.get_by_role("button", name="Take all away").click()
    expect(page.locator("#added")).to_be_hidden()
    assert ranking(page) == before
    page.get_by_role("button", name="Add what the first 3").click()
    expect(chips.first).to_be_visible()
    three = with_feedback(index, ParsedQuery(QUERY), 3)
    assert ranking(page) == [hit.id for hit in index.search([three])[0]]


def test_a_concept_is_added_by_its_name(page, index):
    search(page, "bade")
    ranking(page)
    own = {term.dimension for term in index.query_terms("bade", "concepts")}
    df = index.engine.df[index.span("concepts")]
    number = next(n for n in range(df.size) if df[n] and n not in own)
    name = name_of(index.vocabularies[1].terms[number], number)
    page.locator("#finder summary").click()
    page.get_by_label("Find: in a name or words").fill(name)
    page.get_by_role("button", name="Find").click()
    entry = page.locator("#finder .found li").filter(
        has=page.get_by_role("button", name=re.compile(rf"^{re.escape(name)}( \(\d+ concepts\))?$"))
    )
    entry.first.get_by_role("button", name="Add to the query").click()
    expect(page.locator("#added .chip")).to_have_count(1)
    (weight,) = re.findall(r"add=concepts%3A\d+%3A([\d.]+)", page.url)
    (added,) = re.findall(r"add=concepts%3A(\d+)", page.url)
    query = ParsedQuery("bade", added={("concepts", int(added)): float(weight)})
    assert ranking(page) == [hit.id for hit in index.search([query])[0]]
    # Feedback that is taken back leaves it.
    marked = explain(page).get_attribute("data-id")
    page.locator(".mark").click()
    expect(page.locator("#added .chip").nth(1)).to_be_visible()
    explain(page, ranking(page).index(marked)).locator('.mark[aria-pressed="true"]').click()
    expect(page.locator("#added .chip")).to_have_count(1)


def test_facets_and_filters(page, index):
    search(page, "kilo")
    ranking(page)
    page.locator("#filters summary").click()
    page.locator("#facets").get_by_role("group", name="part").get_by_role(
        "button", name="odd"
    ).click()
    chosen = filtered_ids(index, "part = 'odd'")
    expect(page.locator("#chosen .chip")).to_have_text(re.compile("part: odd"))
    assert ranking(page) == chosen
    page.get_by_label("Condition, such as").fill("number > 11")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#filters-count")).to_have_text(" 2 in use")
    assert ranking(page) == filtered_ids(index, "part = 'odd' and number > 11")
    page.get_by_role("button", name="Any part again").click()
    expect(page.locator("#filters-count")).to_have_text(" 1 in use")
    assert ranking(page) == filtered_ids(index, "number > 11")


def test_a_misspelled_word(page):
    page.get_by_label("Words", exact=True).check()
    search(page, "kilox -bade")
    page.locator("#meant").get_by_role("button", name="kilo -bade").click()
    expect(page.get_by_label("Search for")).to_have_value("kilo -bade")
    assert ranking(page)


def test_swagger_shows_the_api(page, address):
    page.goto(f"{address}/docs")
    expect(page.get_by_text("/feedback", exact=True)).to_be_visible()


def test_html_in_documents_is_text(page):
    search(page, "<script>alert(3)</script> hostile kilo kilo")
    page.get_by_label("Words", exact=True).check()
    expect(page.locator(".result").first.get_by_role("heading")).to_have_text(HOSTILE.title)
    first = explain(page)
    expect(first.locator(".excerpt").first).to_contain_text("<img src=x onerror=alert(1)> 🐱 kilo")
    assert HOSTILE.id in ranking(page)
    # Behind the emoji, JavaScript and Python count differently.
    assert "kilo" in first.locator("mark").all_text_contents()
    assert page.locator("main img, main script, h1[onclick]").count() == 0
    assert page.title() == "<script>alert(3)</script> hostile kilo kilo – lexicept"
    first.locator(".open").click()
    heading = page.get_by_role("dialog").get_by_role("heading").first
    expect(heading.locator("mark")).to_have_text(["alert", "hostile"])
    expect(heading).to_have_text(HOSTILE.title)


def test_side_by_side(page, index):
    search(page, QUERY)
    page.get_by_label("Side by side").check()
    expect(page.get_by_role("heading", name="By words")).to_be_visible()
    ranking(page)
    for vocabulary in ("words", "concepts"):
        column = page.get_by_role("region", name=f"By {vocabulary}")
        ids = column.locator(".result").evaluate_all("all => all.map((one) => one.dataset.id)")
        assert ids == [hit.id for hit in index.search([QUERY], vocabulary=vocabulary)[0]]
        column.get_by_role("button", name="Why").first.click()
        expect(column.locator(".keys").first).to_have_text(f"{vocabulary} 100 %")


def tab_to(page: Page, selector: str, most: int) -> None:
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is more than {most} tabs away")


@pytest.mark.parametrize(
    ("width", "height", "top", "least"), [(1280, 900, 130, 7), (390, 844, 200, 4)]
)
def test_results_come_first_are_compact_and_tell_what_matched(
    browser, address, index, width, height, top, least
):
    page = browser.new_page(viewport={"width": width, "height": height})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/?query={QUERY}")
    ids = ranking(page)
    boxes = page.locator(".result").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect()).map(({ y, bottom }) => [y, bottom])"
    )
    assert boxes[0][0] <= top
    assert sum(bottom <= height for _, bottom in boxes) >= least
    contributions = index.explain(QUERY, ids[0]).contributions
    words = {part.term for part in contributions if part.vocabulary == "words"}
    first = page.locator(".result").first
    assert set(first.locator(".matched .words").all_text_contents()) == words
    assert set(first.locator("mark").all_text_contents()) >= words
    assert not any("/explain" in url for url in asked)
    page.get_by_label("Search for").focus()
    tab_to(page, ".result .open", 8)
    page.get_by_label("Search for").focus()
    tab_to(page, ".skip", 1)
    page.keyboard.press("Enter")
    expect(page.locator("#results")).to_be_focused()
    page.close()


def test_concepts_are_browsed_without_a_search(page):
    expect(page.locator("#about")).to_be_hidden()
    page.locator("#finder summary").click()
    expect(page.locator("#about")).to_contain_text("sparse autoencoder")
    rows = page.locator("#finder .found li")
    expect(rows).to_have_count(40)
    add = rows.nth(1).get_by_role("button", name="Add to the query")
    expect(add).to_have_css("opacity", "0")
    rows.nth(1).locator("button.term").focus()
    page.keyboard.press("Tab")
    expect(add).to_be_focused()
    expect(add).to_have_css("opacity", "1")
    rows.first.locator("button.term").click()
    for heading in ("Words by activation", "Documents"):
        expect(page.get_by_role("dialog")).to_contain_text(heading)
    page.keyboard.press("Escape")
    # The concepts of a text of one's own, whose words open them.
    page.get_by_label("Your own text").fill("bade kilo")
    page.get_by_role("button", name="Read").click()
    expect(page.locator(".heat")).to_have_text("bade kilo")
    page.locator(".heat .token").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page) == []


UNMET = r"^No document that meets the conditions has a word or concept of the query\.$"
STATES = {
    "results": (f"query={QUERY}", r"^\d+ documents\.$"),
    "explained": (f"query={QUERY}&explain=all&steer=words:1:0", r"^\d+ documents; steering moved"),
    "side by side": (f"query={QUERY}&in=compare", r"^\d+ documents by words, \d+ documents by"),
    "an unknown word": (
        "query=kilo zzaxqv&in=words",
        r"^\d+ documents\. No document contains: zzaxqv\.$",
    ),
    "only stop words": ("query=the&in=words", r"^No document has a word of this query\.$"),
    "excluded": (f"query={QUERY} number:>99", UNMET),
    "conditions alone": ("query=number:>99", r"^No document meets the conditions\.$"),
    "weak": (f"query={QUERY}", r"^Nothing matches well\. The nearest of \d+ documents:$"),
    "error": ("query=kilo&filter=number ~ 1", r"^$"),
}


@pytest.mark.parametrize(
    ("name", "scheme"), [*((name, "light") for name in STATES), ("explained", "dark")]
)
def test_each_state_says_one_thing_and_axe_finds_nothing(browser, address, name, scheme):
    asked, expected = STATES[name]
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    if name == "weak":
        weak = {"weak": True, "note": "nothing matches well"}
        page.route("**/search?*", lambda route: route.fulfill(json=route.fetch().json() | weak))
    page.goto(f"{address}/?{asked}")
    expect(page.locator("#results")).to_have_attribute("aria-busy", "false")
    expect(status(page)).to_have_text(re.compile(expected))
    expect(page.get_by_role("alert")).to_be_visible(visible=name == "error")
    for details in ("#terms", "#filters"):
        if page.locator(details).is_visible():
            page.locator(f"{details} > summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(page) == []
    page.close()


def test_the_beginning(page, index):
    expect(page.locator("#collection")).to_have_text(
        re.compile(r"^31 documents, read on \d+ \w+ 20\d\d at \d\d:\d\d\.$")
    )
    expect(page.locator("#finder summary")).to_have_text("Browse the 64 concepts")
    expect(page.locator("#finder .found")).to_be_hidden()
    assert violations(page) == []
    page.locator("#browse").get_by_role("group", name="part").get_by_role(
        "button", name="odd"
    ).click()
    expect(status(page)).to_have_text("15 documents.")
    expect(page.locator("#start")).to_be_hidden()
    expect(page.get_by_label("Search for")).to_have_value("part:odd")
    assert ranking(page) == [f"d{n}" for n in range(1, 21, 2)]
    search(page, "   ")
    expect(page.locator("#start")).to_be_visible()
    expect(page.locator(".result")).to_have_count(0)


def test_examples_are_searched(page):
    page.route("**/examples?*", lambda route: route.fulfill(json={"queries": ["bade kilo"]}))
    page.reload()
    page.get_by_role("group", name="Examples").get_by_role("button", name="bade kilo").click()
    expect(page.get_by_label("Search for")).to_have_value("bade kilo")
    assert ranking(page)


def test_an_explanation_opens_by_mouse_and_keyboard_and_stays_open_if_asked(page):
    search(page, QUERY)
    first, *_ = ranking(page)
    card = explain(page)
    assert f"explained={first}" in page.url
    card.get_by_role("button", name="Why").click()
    expect(card.locator(".parts")).to_be_hidden()
    assert "explained" not in page.url
    page.get_by_label("Search for").focus()
    page.keyboard.press("ArrowDown")
    expect(card.locator(".open")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(card.locator(".parts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(card.locator(".parts")).to_be_hidden()
    page.get_by_role("button", name="Explain all").click()
    expect(page.locator(".result .parts")).to_have_count(10)
    search(page, "kilo muki")
    ranking(page)
    expect(page.locator(".result .parts")).to_have_count(10)
    page.goto(page.url)
    expect(page.locator(".result .parts")).to_have_count(10)


def test_arrows_move_between_results_and_keys_open_and_close(page):
    search(page, QUERY)
    ids = ranking(page)
    page.get_by_label("Search for").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".result").nth(1).locator(".open")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert f"document={ids[1]}" in page.url
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator(".result").nth(1).locator(".open")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Search for")).to_be_focused()
    expect(page.get_by_label("Search for")).to_have_value(QUERY)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("Search for")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Control+k")
    expect(page.get_by_label("Search for")).to_be_focused()


def searched(page: Page) -> list[tuple[str, str | None]]:
    """The queries and vocabularies of the searches from now on."""
    asked: list[tuple[str, str | None]] = []

    def note(request: Request) -> None:
        if "/search?" in request.url:
            values = parse_qs(urlsplit(request.url).query)
            asked.append((values["query"][0], values.get("vocabulary", [None])[0]))

    page.on("request", note)
    return asked


def test_typing_searches_words_at_once_and_everything_after_a_pause(page, index):
    expect(page.locator("#start")).to_be_visible()
    asked = searched(page)
    page.keyboard.type("kilo muki", delay=5)
    expect(status(page)).to_have_text(f"{index.matching('kilo muki').count} documents.")
    assert ranking(page) == [hit.id for hit in index.search(["kilo muki"])[0]]
    typed = ["kilo muki"[:n].strip() for n in range(1, 10)]
    assert [query for query, vocabulary in asked if vocabulary == "words"] == sorted(set(typed))
    assert asked[-1] == ("kilo muki", None)
    # A busy machine may pause between two letters.
    assert sum(vocabulary is None for _, vocabulary in asked) < len(typed)
    assert page.url.endswith("/?query=kilo+muki")
    # What was typed is one step of the history.
    page.go_back()
    expect(page.locator("#start")).to_be_visible()
    expect(page.get_by_label("Search for")).to_have_value("")


def test_answers_that_come_late_are_dropped(page, index):
    held: list[Route] = []
    page.route("**/search?query=bade&*", lambda route: held.append(route))
    page.keyboard.type("bade")
    page.wait_for_timeout(600)
    expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
    page.get_by_label("Search for").fill("muki")
    found = [hit.id for hit in index.search(["muki"])[0]]
    expect(status(page)).to_have_text(f"{index.matching('muki').count} documents.")
    assert ranking(page) == found
    for route in held:
        with contextlib.suppress(Error):  # a request that was given up
            route.continue_()
    page.wait_for_timeout(300)
    assert held
    assert ranking(page) == found
    assert page.url.endswith("/?query=muki")


def test_nothing_moves_where_motion_is_reduced(browser, address):
    page = browser.new_page(reduced_motion="reduce")
    page.goto(f"{address}/?query={QUERY}")
    ranking(page)
    moving = """() => [...document.querySelectorAll("*")].filter((one) => {
      const { transitionDuration, animationName } = getComputedStyle(one);
      return animationName !== "none" || /[1-9]/.test(transitionDuration);
    }).length"""
    assert page.evaluate(moving) == 0
    page.close()


def test_the_similarity_is_a_part_of_the_score_and_the_second_passage_is_folded(page):
    def fulfil(route: Route) -> None:
        why = route.fetch().json()
        pairs = [("owl", "bird"), ("owl", "nest"), ("cat", "bird"), ("cat", "dog")]
        words = [{"query": q, "document": d, "share": 0.1} for q, d in pairs]
        doubled = {"similarity": why["score"], "score": 2 * why["score"]}
        route.fulfill(json={**why, **doubled, "similar_words": words, "further": ["d3"]})

    page.route("**/explain?*", fulfil)
    search(page, QUERY)
    first = explain(page).locator(".why")
    expect(first.locator(".keys")).to_contain_text("similar as a whole 50 %")
    shown = "similar as a whole owl ↔ bird, cat ↔ dog50 %"
    expect(first.locator(".parts li").first).to_have_text(shown)
    further = first.locator(".further")
    expect(further.locator("summary")).to_have_text("The second best passage: d3")
    further.locator("summary").click()
    expect(further.locator(".excerpt")).not_to_be_empty()
    assert violations(page) == []


def test_results_link_to_their_addresses_and_show_the_fields_of_the_filters(page, address):
    template = {"document_url": "https://example.org/docs/{path}"}
    page.route(
        "**/health?*", lambda route: route.fulfill(json={**route.fetch().json(), **template})
    )
    page.goto(f"{address}/?q=kilo&filter=number > 11")
    first = ranking(page)[0]
    facts = page.locator(".result .facts").first
    link = facts.get_by_role("link")
    expect(link).to_have_attribute("href", f"https://example.org/docs/{first}")
    expect(facts).to_contain_text("number: ")
    expect(facts).not_to_contain_text("part: ")


def test_addresses_by_a_template(page):
    expected = {
        ("guide/index.md", None): "https://a.b/guide/",
        ("README.md", "README.md#try-it"): "https://a.b/#try-it",
        ("a b/x.y.html", "a b/x.y.html#ä"): "https://a.b/a%20b/x.y#%C3%A4",
        ("notes#1.txt", None): "https://a.b/notes%231",
        ("plain", None): "https://a.b/plain",
        ("price$&list.md", None): "https://a.b/price$&list",
    }
    call = "async (given) => (await import('/document.js')).filled(...given)"
    for ids, address in expected.items():
        assert page.evaluate(call, ["https://a.b/{path_without_suffix}", *ids]) == address
