"""The report of an index: its statements, its completeness, and hostile text."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import lexicept.encoding.vectorizer
from lexicept.corpora import Document, Qrel, Query
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import JudgedQueries, evaluate_index
from lexicept.evaluation.significance import intervals
from lexicept.index.atlas import BINS, Findings
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.reports import build_report, measured, percent
from lexicept.reports.facts import passage
from lexicept.reports.measured import MeasuredIndex, ReportQueries, WeightSpread
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
    """Vowels with other names."""

    @classmethod
    def load(cls, folder: Path) -> "Letters":
        return cls()


@pytest.fixture(autouse=True)
def _letters(monkeypatch):
    letters = PLACE._replace(module=__name__, vectorizer="Letters")
    monkeypatch.setitem(lexicept.encoding.vectorizer.KINDS, "concepts", letters)


class Structure(HTMLParser):
    """Checks that elements nest; collects parts of the page."""

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
    (body,) = re.findall(
        rf"<caption>{re.escape(caption)}</caption>.*?<tbody>(.*?)</table>", html, re.S
    )
    lines = re.findall(r"<tr>(.*?)</tr>", body, re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in lines]
    return [[re.sub(r"<.*?>", "", cell) for cell in cells_of_line] for cells_of_line in cells]


def check(html: str) -> Structure:
    """Assertions on every report."""
    page = Structure(html)
    assert page.elements[0] == ("html", {"lang": "en"})
    ids = page.all("id")
    assert len(set(ids)) == len(ids)
    assert {target.removeprefix("#") for target in page.all("href")} <= set(ids)
    for reference in ("@import", "http:", "https:", "url("):
        assert reference not in html
    assert not page.all("src")
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == tags.count("main") == tags.count("h1") == 1
    assert all(f"<{tag}" in html for tag in ("nav", "header", "footer"))
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    text = " ".join(page.text)
    assert not re.search(r"\bnan\b|\binf\b|None", text)
    return page


@pytest.mark.parametrize("names", [("words",), ("concepts",), ("words", "concepts")])
@pytest.mark.parametrize("rra", [None, RRASettings()])
@pytest.mark.parametrize("judged", [True, False])
def test_every_kind_of_index(tmp_path, names, rra, judged):
    index = build(tmp_path / "index", names=names, rra=rra)
    html = build_report(index, *((QUERIES, QRELS) if judged else ()))
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
        html = build_report(made)
        check(html)
        assert 'href="#evaluation"' not in html  # no sentences, no queries


def test_numbers_are_those_of_the_index(tmp_path):
    index = build(tmp_path / "index")
    html = build_report(index, QUERIES, QRELS)
    searched = {"words": "words", "concepts": "concepts", "all together": None}
    lines = {cells[0]: cells[1:] for cells in table(html, "Effectiveness and cost")}
    for name, vocabulary in searched.items():
        scores = evaluate_index(index, JUDGED, vocabulary).values
        names = ("nDCG@10", "R@100", "RR@10", "qd_flops", "e2")
        assert lines[name][:5] == [f"{scores[name]:.4f}" for name in names]
    lengths = {cells[0]: cells[1:] for cells in table(html, "Lengths and shared dimensions")}
    mean = index.document_vectors().select("concepts").weights.nnz / 5
    assert lengths["concepts"][0] == f"{mean:.1f}"
    lists = {cells[0]: cells for cells in table(html, "Posting lists")}
    assert lists["concepts"][1] == "5"
    shares = [cells[1] for cells in table(html, "Parts of the scores of the first 10 results")]
    assert sum(float(share.rstrip("%")) for share in shares) == pytest.approx(100, abs=0.2)
    failures = table(html, "The queries with the lowest nDCG@10")
    assert failures[0][1] == "q3"  # its judged answer has no ibex


def test_the_collection_and_what_was_found_come_before_costs(tmp_path):
    index = build(tmp_path / "index", labels=["vowel a", "vowel e", "vowel i", "#3", "u"])
    html = build_report(index, QUERIES, QRELS)
    assert re.findall(r'<section id="([\w-]+)"', html) == [
        *("summary", "topics", "evaluation", "cost")
    ]
    values = evaluate_index(index, JUDGED).per_query["nDCG@10"]
    low, high = intervals({"nDCG@10": values})["nDCG@10"]
    mean = sum(values.values()) / 3
    assert f'<dd class="value">{mean:.3f} ± {(high - low) / 2:.3f}</dd>' in html
    (about,) = re.findall(r"The concepts that tell documents apart: (.*?)\.", html)
    assert set(about.split(", ")) <= {"vowel a", "vowel e", "vowel i", "u"}


def test_a_sample_of_many_queries_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "JUDGED_QUERIES", 2)
    html = build_report(build(tmp_path / "index"), QUERIES, QRELS)
    assert "2 of 3 judged queries, drawn at random" in html
    queries = ReportQueries.from_judged(QUERIES, QRELS)
    assert {qrel.query_id for qrel in queries.qrels} == {query.id for query in queries.queries}


def test_concepts_are_shown_by_their_atlas(tmp_path):
    index = build(tmp_path / "index", labels=["vowel a", "vowel e", "vowel i", "o", "u"])
    html = build_report(index, QUERIES, QRELS)
    page = check(html)
    cards = [name for name in page.all("id") if name.startswith("concept-")]
    assert 1 <= len(cards) <= 5
    assert "<mark>About</mark> cat The cat sleeps" in html
    assert '<a href="#concept-0">vowel a</a>' in html
    weights = {cells[0]: cells for cells in table(html, "The 5 most frequent concepts")}
    documents = int(index.engine.df[-5])
    assert weights["vowel a"][1:] == ["vowel", str(documents), percent(documents / 5), "7.0%"]


HOSTILE = '</style><script>alert(1)</script><img src=x onerror="alert(2)">'


def test_hostile_text_is_shown_as_text(tmp_path):
    word = "\u202e\x1b<script>alert(3)</script>"
    texts = {f"<b>{name}</b>": f"{HOSTILE} {text}" for name, text in TEXTS.items()}
    labels = [f"{word} {n}" for n in range(5)]
    index = build(tmp_path / "<i>index", texts, labels=labels)
    queries = [Query(f"<u>{query.id}", f"{query.text} {HOSTILE}") for query in QUERIES]
    qrels = [Qrel(f"<u>{q.query_id}", f"<b>{q.document_id}</b>", 1) for q in QRELS]
    html = build_report(index, queries, qrels)
    page = Structure(html)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == tags.count("style") == 1
    assert not {"b", "i", "u"} & set(tags)
    assert not page.all("src")
    assert "onerror" not in " ".join(name for _, attrs in page.elements for name in attrs)
    assert not set(html) & {"\u202e", "\x1b"}
    assert "<script>alert(3)" in " ".join(page.text)


def test_queries_without_judgements_are_refused(tmp_path):
    with pytest.raises(InputError, match="without judgements"):
        build_report(build(tmp_path / "index"), QUERIES)


def test_spread_of_weights(tmp_path):
    index = MeasuredIndex(build(tmp_path / "index"), None)
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


def test_passages():
    assert passage("a <b> c", 2, 5) == "a <mark>&lt;b&gt;</mark> c"
    long = "word " * 40 + "here\nthere " + "more " * 40
    text = passage(long, 200, 204)
    assert text.startswith("… word ")
    assert "word <mark>here</mark> there more" in text
    assert text.endswith("more …")
    assert len(text) < 220
    unbroken = "x" * 500
    assert passage(unbroken, 200, 210).count("x") == 10 + 2 * 90


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0%"), (1, "100.0%"), (0.1234, "12.3%"), (0.00123, "0.12%"), (0.0005, "0.050%"),
        (1e-9, "< 0.0001%"), (-0.5, "-50.0%"),
    ],
)  # fmt: skip
def test_shares(value, text):
    assert percent(value) == text


def test_tables_hold_raw_values_for_sorting(tmp_path):
    texts = {f"d{i}": "word " * i for i in range(25)}
    html = build_report(build(tmp_path / "index", texts, names=["words"]))
    Structure(html)
    row = re.findall(r"<tr><th[^>]*>word</th>(.*?)</tr>", html)[0]
    # A bar is as long as the share of the largest in its column.
    assert 'data-sort="24"' in row
    assert 'width="100"' in html
    assert '<table class="sortable">' in html
    assert 'class="scroll long"' in html


def test_only_the_page_s_own_script_and_style_may_run(tmp_path):
    html = build_report(build(tmp_path / "index"))
    policy = re.search(r'Security-Policy" content="(.*?)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert "unsafe" not in policy[1]
    assert not Structure(html).all("style")  # the policy would drop them


def test_command(tmp_path, run):
    judged = "".join(f"{q.query_id} 0 {q.document_id} {q.relevance}\n" for q in QRELS)
    beir = write_beir(tmp_path / "beir", {}, dict(QUERIES), {"test": judged})
    index = tmp_path / "index"
    build(index)
    out = tmp_path / "new" / "report.html"
    arguments = ("report", index, "--out", out, "--queries", beir, "--json")
    assert run(*arguments).json == {"file": str(out), "bytes": out.stat().st_size}
    assert "Effectiveness and cost" in out.read_text()
    before = out.read_bytes()
    assert_error(run(*arguments, "--split", "dev"), "dev")
    assert_error(run("report", tmp_path / "none", "--out", out), "none")
    assert out.read_bytes() == before
