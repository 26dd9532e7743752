"""The report of an index: what it says, that it is complete in itself, and hostile text."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import lexicept.encoding.vectorizer
from lexicept import reports
from lexicept.corpora import Document, Qrel, Query
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import JudgedQueries, evaluate_index
from lexicept.evaluation.significance import intervals
from lexicept.index.atlas import BINS, Findings
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.reports import measured
from lexicept.reports.measured import MeasuredIndex, ReportQueries, WeightSpread
from lexicept.reports.page import (
    Column,
    Page,
    Paragraph,
    ReportSection,
    Table,
    metered,
    passage,
    percent,
    render,
    text_column,
)
from lexicept.weighting import BM25, Splade
from support.collections import write_beir
from support.commands import assert_error
from support.indexes import build_of
from support.vowels import PLACE, Vowels

VOID = {"meta", "input", "br", "img"}

TEXTS = {
    "cat": "The cat sleeps on a warm mat. Cats chase small mice in the garden.",
    "dog": "The dog barks at every stranger. Dogs guard the old house at night.",
    "ibex": "An ibex climbs steep rocks. It lives high up in the mountains.",
    "owl": "The owl hunts mice at night. It sleeps in the old house all day.",
    "empty": "",
}
QUERIES = [Query("q1", "cats and mice"), Query("q2", "guard the house"), Query("q3", "ibex")]
QRELS = [Qrel("q1", "cat", 1), Qrel("q1", "owl", 1), Qrel("q2", "dog", 1), Qrel("q3", "owl", 1)]
JUDGED = JudgedQueries(QUERIES, QRELS)


class Letters(Vowels):
    """Vowels that may have other names."""

    @classmethod
    def load(cls, folder: Path) -> "Letters":
        return cls()


@pytest.fixture(autouse=True)
def _letters(monkeypatch):
    letters = PLACE._replace(module=__name__, vectorizer="Letters")
    monkeypatch.setitem(lexicept.encoding.vectorizer.KINDS, "concepts", letters)


class Structure(HTMLParser):
    """Checks that elements nest; collects what tests look at."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def all(self, name: str) -> list[str]:
        """Every value of an attribute."""
        return [str(attrs[name]) for _, attrs in self.elements if name in attrs]


def build(
    path: Path,
    texts: dict[str, str] = TEXTS,
    names: Sequence[str] = ("words", "concepts"),
    rra: RRASettings | None = None,
    labels: Sequence[str] | None = None,
) -> IndexReader:
    """An index; with ``labels`` of the vowels also an atlas of them."""
    builder = IndexBuilder(path)
    builder.add_documents([Document(n, t, f"About {n}") for n, t in texts.items()], {})
    if "words" in names:
        builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
    if "concepts" in names:
        builder.add_vocabulary(Letters(), VocabularySettings(Splade()))
    if labels is not None:
        builder.add_atlas(findings(labels, len(texts)))
    return builder.commit(rra)


def findings(labels: Sequence[str], documents: int) -> Findings:
    """Each concept fires on the first word of the first document, and is next to the first one."""
    count = len(labels)
    first = np.zeros((count, documents), np.float32)
    first[:, 0] = 2
    near = np.zeros((count, count), np.float32)
    near[1:, 0] = 0.5
    return Findings(
        labels=list(labels),
        sources=np.zeros(count, np.int64),
        tokens=100,
        firings=np.full(count, 7),
        words=["vowel"],
        log_odds=sp.csr_array(np.full((count, 1), 3.0, np.float32)),
        examples=sp.csr_array(first),
        spans=np.tile([0, 5], (count, 1)),
        detection=np.full(count, 0.9),
        histogram=np.zeros((count, BINS), np.int64),
        octave=4,
        nearest=sp.csr_array(near),
    )


def table(html: str, caption: str) -> list[list[str]]:
    """The cells of a table's rows, without tags."""
    (found,) = re.findall(
        rf"<caption>{re.escape(caption)}</caption>.*?<tbody>(.*?)</table>", html, re.S
    )
    rows = re.findall(r"<tr>(.*?)</tr>", found, re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in rows]
    return [[re.sub(r"<.*?>", "", cell) for cell in row] for row in cells]


def check(html: str) -> Structure:
    """What holds for every report."""
    page = Structure(html)
    assert page.elements[0] == ("html", {"lang": "en"})
    ids = page.all("id")
    assert len(set(ids)) == len(ids)
    assert {target.removeprefix("#") for target in page.all("href")} <= set(ids)
    for reference in ("@import", "http:", "https:", "url("):
        assert reference not in html
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.all("src"))
    assert all(page.all("alt"))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == tags.count("main") == tags.count("h1") == 1
    assert all(f"<{tag}" in html for tag in ("nav", "header", "footer", "figcaption"))
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    shown = " ".join(page.text)
    assert not re.search(r"\bnan\b|\binf\b|None", shown)
    return page


@pytest.mark.parametrize("names", [("words",), ("concepts",), ("words", "concepts")])
@pytest.mark.parametrize("rra", [None, RRASettings()])
@pytest.mark.parametrize("judged", [True, False])
def test_every_kind_of_index(tmp_path, names, rra, judged):
    index = build(tmp_path / "index", names=names, rra=rra)
    html = reports.build_report(index, *((QUERIES, QRELS) if judged else ()))
    page = check(html)
    expected = ["summary", "topics", "evaluation", "cost"]
    assert [attrs["href"] for tag, attrs in page.elements if tag == "a"][1:] == [
        f"#{section}" for section in expected
    ]
    assert ("pseudo-queries" in html) == (not judged)
    assert ("(RRA): no." in html) == (rra is None)
    assert ("document prior" in html) == (rra is not None)


def test_postings_without_documents(tmp_path):
    index = build(tmp_path / "index", {"a": "the", "b": ""}, names=["words"])
    # Titles have words: an index of nothing at all.
    settings = VocabularySettings(BM25())
    vocabularies = (WordVectorizer(), settings), (Letters(), settings)
    nothing = build_of(tmp_path / "nothing", {"a": "the", "b": ""}, *vocabularies)
    for made in (index, nothing):
        html = reports.build_report(made)
        check(html)
        assert 'href="#evaluation"' not in html  # no sentences, no queries


def test_numbers_are_those_of_the_index(tmp_path):
    index = build(tmp_path / "index")
    html = reports.build_report(index, QUERIES, QRELS)
    searched = {"words": "words", "concepts": "concepts", "all together": None}
    rows = {row[0]: row[1:] for row in table(html, "Effectiveness and cost")}
    for name, vocabulary in searched.items():
        found = evaluate_index(index, JUDGED, vocabulary).values
        names = ("nDCG@10", "R@100", "RR@10", "qd_flops", "e2")
        assert rows[name][:5] == [f"{found[name]:.4f}" for name in names]
    lengths = {row[0]: row[1:] for row in table(html, "Lengths and shared dimensions")}
    mean = index.document_vectors().select("concepts").weights.nnz / 5
    assert lengths["concepts"][0] == f"{mean:.1f}"
    lists = {row[0]: row for row in table(html, "Posting lists")}
    assert lists["concepts"][1] == "5"
    shares = [row[1] for row in table(html, "Parts of the scores of the first 10 results")]
    assert sum(float(share.rstrip("%")) for share in shares) == pytest.approx(100, abs=0.2)
    failures = table(html, "The queries with the lowest nDCG@10")
    assert failures[0][1] == "q3"  # its judged answer has no ibex


def test_the_collection_and_what_was_found_come_before_costs(tmp_path):
    index = build(tmp_path / "index", labels=["vowel a", "vowel e", "vowel i", "#3", "u"])
    html = reports.build_report(index, QUERIES, QRELS, build(tmp_path / "other"))
    assert re.findall(r'<section id="([\w-]+)"', html) == [
        *("summary", "topics", "evaluation", "comparison", "cost")
    ]
    values = evaluate_index(index, JUDGED).per_query["nDCG@10"]
    low, high = intervals({"nDCG@10": values})["nDCG@10"]
    mean = sum(values.values()) / 3
    assert f'<dd class="value">{mean:.3f} ± {(high - low) / 2:.3f}</dd>' in html
    (about,) = re.findall(r"The concepts that tell documents apart: (.*?)\.", html)
    assert set(about.split(", ")) <= {"vowel a", "vowel e", "vowel i", "u"}


def test_a_sample_of_many_queries_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "JUDGED_QUERIES", 2)
    html = reports.build_report(build(tmp_path / "index"), QUERIES, QRELS)
    assert "2 of 3 judged queries, drawn at random" in html
    asked = ReportQueries.from_judged(QUERIES, QRELS)
    assert {qrel.query_id for qrel in asked.qrels} == {query.id for query in asked.queries}


def test_concepts_are_shown_by_their_atlas(tmp_path):
    index = build(tmp_path / "index", labels=["vowel a", "vowel e", "vowel i", "o", "u"])
    html = reports.build_report(index, QUERIES, QRELS)
    page = check(html)
    cards = [name for name in page.all("id") if name.startswith("concept-")]
    assert 1 <= len(cards) <= 5
    assert "<mark>About</mark> cat The cat sleeps" in html
    assert '<a href="#concept-0">vowel a</a>' in html
    rows = {row[0]: row for row in table(html, "The 5 most frequent concepts")}
    documents = int(index.engine.df[-5])
    assert rows["vowel a"][1:] == ["vowel", str(documents), percent(documents / 5), "7.0%"]


HOSTILE = '</style><script>alert(1)</script><img src=x onerror="alert(2)">'


def test_hostile_text_is_shown_as_text(tmp_path):
    word = "\u202e\x1b<script>alert(3)</script>"
    texts = {f"<b>{name}</b>": f"{HOSTILE} {text}" for name, text in TEXTS.items()}
    labels = [f"{word} {n}" for n in range(5)]
    index = build(tmp_path / "<i>index", texts, labels=labels)
    other = build(tmp_path / "<i>other", texts, names=["words"])
    queries = [Query(f"<u>{query.id}", f"{query.text} {HOSTILE}") for query in QUERIES]
    qrels = [Qrel(f"<u>{q.query_id}", f"<b>{q.document_id}</b>", 1) for q in QRELS]
    html = reports.build_report(index, queries, qrels, other)
    page = Structure(html)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == tags.count("style") == 1
    assert not {"b", "i", "u"} & set(tags)
    assert all(source.startswith("data:") for source in page.all("src"))
    assert "onerror" not in " ".join(name for _, attrs in page.elements for name in attrs)
    assert not set(html) & {"\u202e", "\x1b"}
    assert "<script>alert(3)" in " ".join(page.text)


def test_two_indexes_query_by_query(tmp_path):
    words, concepts = build(tmp_path / "words", names=["words"]), build(tmp_path / "both")
    html = reports.build_report(concepts, QUERIES, QRELS, words)
    check(html)
    ours = evaluate_index(concepts, JUDGED)
    theirs = evaluate_index(words, JUDGED)
    difference = ours.values["nDCG@10"] - theirs.values["nDCG@10"]
    assert f'<dd class="value">{difference:+.3f}</dd>' in html
    leads = re.findall(r"<caption>Scores in (\w+)</caption>.*?(<th.*?)</table>", html, re.S)
    assert leads
    for _, found in leads:
        columns = re.findall(r'<th scope="col" class="number">(.*?)</th>', found)
        total = re.search(r"<tfoot>(.*?)</tfoot>", found, re.S)
        assert columns[2] == "Lead"
        assert total is not None
    # The totals are the scores of a search, and the rows add up to them.
    rows = [[row[0], *map(float, row[2:])] for row in first_lead(html, "both")]
    *parts, (name, mine, rival, lead) = rows
    assert name == "Score"
    assert sum(part[1] for part in parts) == pytest.approx(mine, abs=0.004)
    assert lead == pytest.approx(mine - rival, abs=0.0011)
    scores = {round(hit.score, 3) for query in QUERIES for hit in concepts.search([query.text])[0]}
    assert round(mine, 3) in scores | {0.0}


def first_lead(html: str, name: str) -> list[list[str]]:
    (start, *_) = [m.start() for m in re.finditer(f"<caption>Scores in {name}</caption>", html)]
    end = html.index("</table>", start) + len("</table>")
    return table(html[start:end], f"Scores in {name}")


def test_an_index_against_itself_ties(tmp_path):
    index = build(tmp_path / "a" / "same")
    again = build(tmp_path / "b" / "same")
    html = reports.build_report(index, QUERIES, QRELS, again)
    check(html)
    assert "Largest wins" not in html
    assert '<dt>Ties</dt><dd class="value">3</dd>' in html
    assert str(tmp_path / "a" / "same") in html  # folders of the same name are told apart


def test_indexes_of_other_documents_are_refused(tmp_path):
    other = build(tmp_path / "other", {"x": "cat"})
    with pytest.raises(InputError, match="no document of"):
        reports.build_report(build(tmp_path / "index"), QUERIES, QRELS, other)
    with pytest.raises(InputError, match="without judgements"):
        reports.build_report(build(tmp_path / "more"), QUERIES)


def test_spread_of_weights(tmp_path):
    index = MeasuredIndex(build(tmp_path / "index"), "index", None)
    weights = index.index.engine.matrix().toarray().astype(np.float64)
    for name in ("words", "concepts"):
        spread, vocabulary = index.spread(name), weights[:, index.index.span(name)]
        assert spread.documents.tolist() == (vocabulary > 0).sum(axis=0).tolist()
        assert spread.lengths.tolist() == (vocabulary > 0).sum(axis=1).tolist()
        variance = vocabulary.var(axis=0)
        np.testing.assert_allclose(spread.variance_shares, variance / variance.sum(), atol=1e-9)


def test_a_dimension_that_all_have_alike_tells_nothing():
    spread = WeightSpread(np.array([2, 1]), np.array([4, 2, 3]), np.array([0.0, 0.25, 0.75]))
    assert spread.telling(3) == [2, 1]
    assert spread.telling(1) == [2]


def test_a_bar_before_a_share():
    assert 'width="25"' in metered(0.1, 0.4)
    assert metered(0.1, 0.4).endswith('<span class="after">10.0%</span>')
    assert 'width="0"' in metered(0, 0)
    assert 'width="100"' in metered(0.9, 0.4)


def test_passages():
    assert passage("a <b> c", 2, 5) == "a <mark>&lt;b&gt;</mark> c"
    long = "word " * 40 + "here\nthere " + "more " * 40
    shown = passage(long, 200, 204)
    assert shown.startswith("… word ")
    assert "word <mark>here</mark> there more" in shown
    assert shown.endswith("more …")
    assert len(shown) < 220
    unbroken = "x" * 500
    assert passage(unbroken, 200, 210).count("x") == 10 + 2 * 90


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0.0%"), (1, "100.0%"), (0.1234, "12.3%"), (0.00123, "0.12%"), (0.0005, "0.050%"),
        (1e-9, "< 0.0001%"), (-0.5, "-50.0%"),
    ],
)  # fmt: skip
def test_shares(value, shown):
    assert percent(value) == shown


def test_tables_hold_raw_values_for_sorting():
    columns = [text_column("Name"), Column("Size", lambda size: f"{size} MB")]
    long = Table("Sizes", columns, [(f"n{i}", i) for i in range(21)], total=("all", 210))
    short = Table("Few", columns, [("a", 1)])
    html = render(
        Page("T", "", [ReportSection("s", "S", "Intro\x00", [long, short, Paragraph("<p>")])])
    )
    Structure(html)
    assert '<td class="number" data-sort="20">20 MB</td>' in html
    assert html.count('<table class="sortable">') == 1
    assert html.count('class="scroll long"') == 1
    assert "Intro\ufffd" in html
    assert "<p>&lt;p&gt;</p>" in html


def test_only_the_page_s_own_script_and_style_may_run(tmp_path):
    html = reports.build_report(build(tmp_path / "index"))
    policy = re.search(r'Security-Policy" content="(.*?)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert "unsafe" not in policy[1]
    assert not Structure(html).all("style")  # the policy would drop them


def test_command(tmp_path, run):
    judged = "".join(f"{q.query_id} 0 {q.document_id} {q.relevance}\n" for q in QRELS)
    beir = write_beir(tmp_path / "beir", {}, dict(QUERIES), {"test": judged})
    index, other = tmp_path / "index", tmp_path / "other"
    build(index)
    build(other, names=["words"])
    out = tmp_path / "new" / "report.html"
    arguments = ("report", index, "--out", out, "--queries", beir, "--against", other, "--json")
    assert run(*arguments).json == {"file": str(out), "bytes": out.stat().st_size}
    assert "Two indexes compared" in out.read_text()
    before = out.read_bytes()
    assert_error(run(*arguments, "--split", "dev"), "dev")
    assert_error(run("report", tmp_path / "none", "--out", out), "none")
    assert out.read_bytes() == before
