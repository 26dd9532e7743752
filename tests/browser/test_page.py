"""The page in a real browser: search, explanation, steering, hostile documents, the keyboard."""

import json
import re
import shutil
from dataclasses import replace

import pytest
from playwright.sync_api import Page, Route, expect, sync_playwright

from lexicept.explanation.contributions import name_of
from lexicept.fields.filters import parse as parse_filter
from lexicept.index.feedback import like, with_feedback
from lexicept.index.reader import IndexReader
from lexicept.queries.syntax import ParsedQuery
from support.served import HOSTILE, save_index, serving

CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
QUERY = "bade kilo muki"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return save_index(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def address(path):
    with serving(path) as address:
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


def search(page: Page, query: str) -> None:
    page.get_by_label("Search for").fill(query)
    page.keyboard.press("Enter")


def open_terms(page: Page) -> None:
    page.locator("#terms summary").click()


def ranking(page: Page) -> list[str]:
    """The ids of the displayed results, once all of the last search are explained."""
    expect(page.locator("#results")).not_to_have_attribute("aria-busy", "true")
    results = page.locator(".result")
    expect(results.first).to_be_visible()
    expect(page.locator(".result .parts")).to_have_count(results.count())
    return page.locator(".result .facts > :nth-child(3)").all_text_contents()


def filtered_ids(index: IndexReader, text: str) -> list[str]:
    query = ParsedQuery("kilo", filter=parse_filter(text))
    return [hit.id for hit in index.search([query])[0]]


def test_search_shows_results_and_why(page, path):
    search(page, QUERY)
    index = IndexReader.open(path)
    assert ranking(page) == [hit.id for hit in index.search([QUERY])[0]]
    total = index.matching(QUERY).count
    expected = "10 results." if total == 10 else f"1 to 10 of {total} results."
    expect(page.get_by_role("status").first).to_have_text(expected)
    top = page.locator(".result").first
    why = index.explain(QUERY, index.search([QUERY])[0][0].id)
    words = sum(c.score for c in why.contributions if c.vocabulary == "words")
    expect(top.locator(".keys")).to_contain_text(f"words {round(100 * words / why.score)} %")
    idea = why.ideas[0]
    expect(top.locator(".parts li").first).to_contain_text(idea.name)
    largest = idea.parts[0]
    (span, *_) = largest.document_spans
    marked = top.locator(f'mark[data-terms~="{largest.vocabulary}:{largest.dimension}"]')
    expect(marked.first).to_have_text(why.content[span.start : span.end])
    expect(marked.first).not_to_have_class(re.compile("active"))
    top.locator(".parts li").first.hover()
    expect(marked.first).to_have_class(re.compile("active"))


def test_results_are_busy_until_those_of_the_last_search_are_shown(page):
    search(page, QUERY)
    ranking(page)
    held: list[Route] = []
    page.route("**/search?*", lambda route: held.append(route))
    search(page, "kilo")
    expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
    for route in held:
        route.continue_()
    expect(page.locator("#results")).to_have_attribute("aria-busy", "false")


def test_steering_changes_the_ranking_and_goes_back(page, path):
    search(page, QUERY)
    before = ranking(page)
    open_terms(page)
    page.get_by_role("button", name="Remove: word bade").click()
    index = IndexReader.open(path)
    dimension = next(t.dimension for t in index.query_terms(QUERY) if t.term == "bade")
    steered = index.search([ParsedQuery(QUERY, steering={("words", dimension): 0.0})])[0]
    expect(page.get_by_role("status").first).to_contain_text("steering moved")
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
    contribution = {
        "vocabulary": "words",
        "dimension": 0,
        "term": "x",
        "score": 1.0,
        "query_spans": [],
    }
    why = {
        "title": "",
        "text": QUERY,
        "content": "漢字" * 1000,
        "score": 1.0,
        "prior": 0.0,
        "similarity": 0.0,
        "similar_words": [],
    }
    why["contributions"] = [{**contribution, "document_spans": [span]}]
    page.route("**/explain?*", lambda route: route.fulfill(json=why))
    search(page, QUERY)
    expect(page.locator(".result").first.locator("mark")).to_have_text("漢字")


def test_a_result_that_can_not_be_explained_leaves_the_others(page, path):
    hits = IndexReader.open(path).search([QUERY])[0]
    gone = {"detail": "this index has no document of that id"}
    # A status that the browser does not report in its console, which must stay empty.
    page.add_init_script(
        f"""const asked = fetch;
        window.fetch = (address, options) => address.includes("document_id={hits[1].id}&")
          || address.endsWith("document_id={hits[1].id}")
          ? Promise.resolve(new Response({json.dumps(json.dumps(gone))}, {{ status: 404 }}))
          : asked(address, options);"""
    )
    page.reload()
    search(page, QUERY)
    cards = page.locator(".result")
    expect(page.locator(".result .parts")).to_have_count(len(hits) - 1)
    expect(cards).to_have_count(len(hits))
    expect(cards.nth(1).locator(".why")).to_have_text(f"Not explained: {gone['detail']}")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_factor_written_by_hand_is_halved_to_what_the_server_takes(page, path, address):
    (term, *_) = IndexReader.open(path).query_terms(QUERY, "words")
    page.goto(f"{address}/?q={QUERY}&in=words&steer=words:{term.dimension}:0.333333")
    ranking(page)
    open_terms(page)
    page.get_by_role("button", name=f"Lower: word {term.term}").click()
    expect(page.locator(".steered .factor")).to_have_text("× 0.166666")
    ranking(page)
    assert page.url.endswith("%3A0.166666")


def test_an_address_opens_a_concept_of_its_query(page, path, address):
    terms = IndexReader.open(path).query_terms(QUERY, "concepts")
    page.goto(f"{address}/?q={QUERY}&concept={terms[0].dimension}")
    expect(page.locator("#concept-steering")).to_contain_text("In your query")


def test_a_concept_shows_its_documents_and_is_steered(page, path):
    search(page, QUERY)
    ranking(page)
    open_terms(page)
    concept = page.locator("#terms button.term").first
    label = concept.inner_text()
    concept.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Documents")
    index = IndexReader.open(path)
    concept_id = int(re.search(r"concept=(\d+)", page.url)[1])
    name = index.vocabularies[1].terms[concept_id]
    expect(dialog.get_by_role("heading", name=name)).to_be_focused()
    assert label.endswith(name)  # without a name, its number after the word of the query
    dialog.get_by_role("button", name="Raise").click()
    expect(dialog).to_contain_text("× 2")
    assert f"steer=concepts%3A{concept_id}%3A2" in page.url
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(concept).to_be_focused()
    raised = index.search([ParsedQuery(QUERY, steering={("concepts", concept_id): 2.0})])[0]
    assert ranking(page) == [hit.id for hit in raised]


def test_pages_of_results(page, path):
    page.get_by_label("Words", exact=True).check()
    search(page, "number:0..29")
    expect(page.get_by_role("status").first).to_have_text("1 to 10 of 30 results.")
    assert ranking(page) == [f"d{n}" for n in range(10)]
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("status").first).to_have_text("11 to 20 of 30 results.")
    assert ranking(page) == [f"d{n}" for n in range(10, 20)]
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    assert "page=3" in page.url
    page.go_back()
    expect(page.locator("#pages span")).to_have_text("Page 2 of 3")


def test_a_result_opens_its_document_with_all_that_fired(page, path):
    search(page, QUERY)
    ranking(page)
    index = IndexReader.open(path)
    (hit, *_) = index.search([QUERY])[0]
    page.locator(".result .open").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".parts")).to_be_visible()
    expect(dialog.locator(".excerpt")).to_have_text(hit.text)
    fired = {
        f"{contribution.vocabulary}:{contribution.dimension}"
        for contribution in index.explain(QUERY, hit.id).contributions
        if contribution.document_spans
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
    assert ranking(page) == [similar.id for similar in index.search([like(index, hit.id)])[0]]


def test_one_click_adds_what_a_result_is_about(page, path):
    search(page, QUERY)
    before = ranking(page)
    page.locator(".result .mark").nth(1).click()
    chips = page.locator("#added .chip")
    expect(chips.first).to_be_visible()
    index = IndexReader.open(path)
    fed = with_feedback(index, ParsedQuery(QUERY), [before[1]])
    expect(chips).to_have_count(8)  # the largest
    page.get_by_role("button", name=f"Show all {len(fed.added)}").click()
    expect(chips).to_have_count(len(fed.added))
    assert ranking(page) == [hit.id for hit in index.search([fed])[0]]
    pressed = page.locator('.mark[aria-pressed="true"]')
    expect(pressed).to_have_attribute("data-id", before[1])
    chips.first.get_by_role("button", name="Take away").click()
    expect(chips).to_have_count(len(fed.added) - 1)
    left = replace(fed, added=dict(list(fed.added.items())[1:]))
    assert ranking(page) == [hit.id for hit in index.search([left])[0]]
    page.get_by_role("button", name="Take all away").click()
    expect(page.locator("#added")).to_be_hidden()
    assert ranking(page) == before
    page.get_by_role("button", name="Add what the first 3").click()
    expect(chips.first).to_be_visible()
    three = with_feedback(index, ParsedQuery(QUERY), 3)
    assert ranking(page) == [hit.id for hit in index.search([three])[0]]


def test_a_concept_is_added_by_its_name(page, path):
    search(page, "bade")
    ranking(page)
    index = IndexReader.open(path)
    query_dimensions = {term.dimension for term in index.query_terms("bade", "concepts")}
    df = index.engine.df[index.span("concepts")]
    i = next(n for n in range(df.size) if df[n] and n not in query_dimensions)
    name = name_of(index.vocabularies[1].terms[i], i)
    page.get_by_label("Find: in a name or words").fill(name)
    page.get_by_role("button", name="Find").click()
    item = page.locator("#finder .found li").filter(
        has=page.get_by_role("button", name=re.compile(rf"^{re.escape(name)}( \(\d+ concepts\))?$"))
    )
    item.first.get_by_role("button", name="Add to the query").click()
    expect(page.locator("#added .chip")).to_have_count(1)
    (weight,) = re.findall(r"add=concepts%3A\d+%3A([\d.]+)", page.url)
    (added,) = re.findall(r"add=concepts%3A(\d+)", page.url)
    query = ParsedQuery("bade", added={("concepts", int(added)): float(weight)})
    assert ranking(page) == [hit.id for hit in index.search([query])[0]]
    # Feedback that is taken back leaves it.
    page.locator(".result .mark").first.click()
    expect(page.locator("#added .chip").nth(1)).to_be_visible()
    page.locator('.mark[aria-pressed="true"]').click()
    expect(page.locator("#added .chip")).to_have_count(1)


def test_facets_and_filters(page, path):
    search(page, "kilo")
    ranking(page)
    page.locator("#filters summary").click()
    page.locator("#facets").get_by_role("group", name="part").get_by_role(
        "button", name="odd"
    ).click()
    index = IndexReader.open(path)
    ids = filtered_ids(index, "part = 'odd'")
    expect(page.locator("#chosen .chip")).to_have_text(re.compile("part: odd"))
    assert ranking(page) == ids
    page.get_by_label("Condition, such as").fill("number > 11")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#filters-count")).to_have_text("2 in use")
    both = "part = 'odd' and number > 11"
    assert ranking(page) == filtered_ids(index, both)
    page.get_by_role("button", name="Any part again").click()
    expect(page.locator("#filters-count")).to_have_text("1 in use")
    assert ranking(page) == filtered_ids(index, "number > 11")


def test_a_misspelled_word(page):
    page.get_by_label("Words", exact=True).check()
    search(page, "kilox -bade")
    page.locator("#meant").get_by_role("button", name="kilo -bade").click()
    expect(page.get_by_label("Search for")).to_have_value("kilo -bade")
    assert ranking(page)


def test_what_a_concept_is(page):
    expect(page.locator("#about p")).to_be_hidden()
    page.locator("#about summary").click()
    expect(page.locator("#about p")).to_contain_text("sparse autoencoder")


def test_swagger_shows_the_api(page, address):
    page.goto(f"{address}/docs")
    expect(page.get_by_text("/feedback", exact=True)).to_be_visible()


@pytest.mark.parametrize("query", ["", "   "])
def test_an_empty_query_asks_for_one(page, query):
    search(page, query)
    expect(page.get_by_role("status").first).to_contain_text("Type a query")
    expect(page.locator(".result")).to_have_count(0)


def test_nothing_found(page):
    page.get_by_label("Words", exact=True).check()
    search(page, "unheard of")
    expect(page.get_by_role("status").first).to_contain_text("No results")


def test_unknown_words_are_named(page):
    search(page, "zzaxqv")
    status = page.get_by_role("status").first
    expect(status).to_contain_text("No document contains: zzaxqv; results are from concepts only.")


def test_html_in_documents_is_text(page):
    search(page, "<script>alert(3)</script> hostile kilo kilo")
    page.get_by_label("Words", exact=True).check()
    top = page.locator(".result").first
    expect(top.get_by_role("heading")).to_have_text(HOSTILE.title)
    expect(top.locator(".excerpt")).to_contain_text("<img src=x onerror=alert(1)> 🐱 kilo")
    assert HOSTILE.id in ranking(page)
    # Behind the emoji, JavaScript and Python count differently.
    assert "kilo" in top.locator("mark").all_text_contents()
    assert page.locator("main img, main script, h1[onclick]").count() == 0
    assert page.title() == "<script>alert(3)</script> hostile kilo kilo – lexicept"
    top.locator(".open").click()
    heading = page.get_by_role("dialog").get_by_role("heading").first
    expect(heading.locator("mark")).to_have_text(["alert", "hostile"])
    expect(heading).to_have_text(HOSTILE.title)


def test_side_by_side(page, path):
    search(page, QUERY)
    page.get_by_label("Side by side").check()
    expect(page.get_by_role("heading", name="By words")).to_be_visible()
    ranking(page)
    index = IndexReader.open(path)
    for vocabulary in ("words", "concepts"):
        column = page.get_by_role("region", name=f"By {vocabulary}")
        ids = column.locator(".facts span:nth-child(3)").all_text_contents()
        assert ids == [hit.id for hit in index.search([QUERY], vocabulary=vocabulary)[0]]
        expect(column.locator(".keys").first).to_have_text(f"{vocabulary} 100 %")


def tab_to(page: Page, selector: str, most: int) -> None:
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is more than {most} tabs away")


@pytest.mark.parametrize(("width", "height", "top"), [(1280, 800, 330), (390, 844, 400)])
def test_results_come_first(browser, address, width, height, top):
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(f"{address}/?q={QUERY}")
    ranking(page)
    box = page.locator(".result").first.bounding_box()
    assert box is not None
    assert box["y"] <= top
    page.get_by_label("Search for").focus()
    tab_to(page, ".result .open", 5)
    page.get_by_label("Search for").focus()
    tab_to(page, ".skip", 1)
    page.keyboard.press("Enter")
    expect(page.locator("#results")).to_be_focused()
    page.close()


def test_concepts_are_browsed_without_a_search(page):
    expect(page.locator("#finder .found li")).to_have_count(40)
    page.locator("#finder .found button.term").first.click()
    for heading in ("Words by activation", "Documents"):
        expect(page.get_by_role("dialog")).to_contain_text(heading)
    page.keyboard.press("Escape")
    # The concepts of a text of one's own, whose words open them.
    page.get_by_label("Your own text").fill("bade kilo")
    page.get_by_role("button", name="Read").click()
    expect(page.locator(".heat")).to_have_text("bade kilo")
    page.locator(".heat .token").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate(CONTRASTS) == []


def test_nothing_matches_well(page):
    def fulfil(route: Route) -> None:
        output = route.fetch().json()
        route.fulfill(json={**output, "weak": True, "note": "nothing matches well"})

    page.route("**/search?*", fulfil)
    search(page, QUERY)
    ranking(page)
    expect(page.locator("#results")).to_have_class(re.compile("weak"))
    expect(page.get_by_role("status").first).to_have_text(re.compile(r"^Nothing matches well\. \d"))
    assert page.evaluate(CONTRASTS) == []


def test_a_query_that_is_too_long_is_said(browser, address):
    page = browser.new_page()  # its console reports the refusal
    page.goto(address)
    search(page, "kilo " * 1_000)
    expect(page.get_by_role("alert")).to_contain_text("at most 4000 characters")
    page.close()


def test_the_similarity_is_a_part_of_the_score(page):
    def fulfil(route: Route) -> None:
        why = route.fetch().json()
        pairs = [("owl", "bird"), ("owl", "nest"), ("cat", "bird"), ("cat", "dog")]
        words = [{"query": q, "document": d, "share": 0.1} for q, d in pairs]
        doubled = {"similarity": why["score"], "score": 2 * why["score"]}
        route.fulfill(json={**why, **doubled, "similar_words": words})

    page.route("**/explain?*", fulfil)
    search(page, QUERY)
    ranking(page)
    top = page.locator(".why").first
    expect(top.locator(".keys")).to_contain_text("similar as a whole 50 %")
    expected = "similar as a whole owl ↔ bird, cat ↔ dog50 %"
    expect(top.locator(".parts li").first).to_have_text(expected)
    assert page.evaluate(CONTRASTS) == []


def test_results_link_to_their_addresses_and_show_the_fields_of_the_filters(browser, path):
    with serving(path, url_prefix="https://example.org/docs/") as address:
        page = browser.new_page()
        page.goto(f"{address}/?q=kilo&filter=number > 11")
        top = ranking(page)[0]
        facts = page.locator(".result .facts").first
        expect(facts.get_by_role("link")).to_have_attribute(
            "href", f"https://example.org/docs/{top}"
        )
        expect(facts).to_contain_text("number: ")
        expect(facts).not_to_contain_text("part: ")
        page.close()


def test_the_keyboard_is_enough(page):
    expect(page.get_by_label("Search for")).to_be_focused()
    page.keyboard.type(QUERY)
    page.keyboard.press("Enter")
    before = ranking(page)
    tab_to(page, "#terms summary", 10)
    page.keyboard.press("Enter")
    tab_to(page, "[aria-label='Remove: word kilo']", 30)
    page.keyboard.press("Enter")
    expect(page.locator(".moved").first).to_be_visible()
    assert ranking(page) != before
    page.keyboard.press("Enter")
    expect(page.locator(".moved")).to_have_count(0)
    assert ranking(page) == before


def test_a_server_that_is_gone(browser, path):
    page = browser.new_page()
    with serving(path) as address:
        page.goto(address)
        expect(page.locator("#collection")).to_contain_text("31 documents")
    search(page, QUERY)
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_a_phone(browser, address, scheme):
    """Nothing is wider than the screen, and contrasts reach WCAG's level AA."""
    page = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page.goto(f"{address}/?q=bade+kilo+muki&steer=words%3A1%3A0")
    ranking(page)
    box = page.locator(".result").first.bounding_box()
    assert box is not None
    assert box["y"] < 460  # the screen ends at 740
    page.locator("#terms summary").click()
    page.locator("#filters summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    low = page.evaluate(CONTRASTS)
    assert low == []
    page.close()


def test_the_browser_asks_for_the_key(browser, path):
    key = "0123456789abcdef"
    with serving(path, key) as address:
        context = browser.new_context(http_credentials={"username": "any", "password": key})
        page = context.new_page()
        page.goto(address)
        search(page, QUERY)
        assert len(ranking(page)) == 10
        context.close()


CONTRASTS = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if ((channels(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || element.closest("[hidden], [aria-disabled], .skip, dialog")) continue;
    const [a, b] = [luminance(getComputedStyle(element).color), luminance(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return low;
}"""
