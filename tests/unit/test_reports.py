"""The report of an index: its statements, its completeness, and hostile text."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import lexicept.encoding.vectorizer
from lexicept.corpora import Document, Qrel, Query
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError
from lexicept.evaluation.effectiveness import JudgedQueries, evaluate_index
from lexicept.evaluation.significance import intervals
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.reports.report import build_report, passage
from lexicept.weighting import BM25, Splade
from support.indexes import build_of
from support.vowels import PLACE, Vowels, findings

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
        builder.add_atlas(replace(findings(len(texts)), labels=list(labels)))
    return builder.commit(rra)


def cells(html: str, caption: str) -> list[list[str]]:
    """The cells of a table, row by row, without tags."""
    (body,) = re.findall(
        rf"<caption>{re.escape(caption)}</caption>.*?<tbody>(.*?)</table>", html, re.S
    )
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.S)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in rows]


def check(html: str) -> Structure:
    page = Structure(html)
    assert page.elements[0] == ("html", {"lang": "en"})
    ids = page.all("id")
    assert len(set(ids)) == len(ids)
    for reference in ("@import", "http:", "https:", "url("):
        assert reference not in html
    tags = [tag for tag, _ in page.elements]
    assert tags.count("main") == tags.count("h1") == tags.count("style") == 1
    assert not {"script", "img", "b", "i", "u"} & set(tags)
    assert not {"src", "href", "style"} & {name for _, attrs in page.elements for name in attrs}
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert not re.search(r"\bnan\b|\binf\b|None", " ".join(page.text))
    policy = re.search(r'Security-Policy" content="(.*?)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    return page


@pytest.mark.parametrize(
    ("names", "rra", "judged"),
    [
        (("words",), RRASettings(), True),
        (("concepts",), None, False),
        (("words", "concepts"), None, True),
        (("words", "concepts"), RRASettings(), False),
    ],
)
def test_every_kind_of_index(tmp_path, names, rra, judged):
    index = build(tmp_path / "index", names=names, rra=rra)
    html = build_report(index, *((QUERIES, QRELS) if judged else ()))
    check(html)
    assert re.findall(r'<section id="([\w-]+)"', html) == ["summary", "evaluation", "cost"]
    assert ("pseudo-queries" in html) == (not judged)


def test_postings_without_documents(tmp_path):
    index = build(tmp_path / "index", {"a": "the", "b": ""}, names=["words"])
    # Titles have words: an index of nothing at all.
    settings = VocabularySettings(BM25())
    vocabularies = (WordVectorizer(), settings), (Letters(), settings)
    nothing = build_of(tmp_path / "nothing", {"a": "the", "b": ""}, *vocabularies)
    for made in (index, nothing):
        html = build_report(made)
        check(html)
        assert 'id="evaluation"' not in html  # no sentences, no queries


def test_numbers_are_those_of_an_evaluation(tmp_path):
    index = build(tmp_path / "index")
    html = build_report(index, QUERIES, QRELS)
    results = evaluate_index(index, JUDGED)
    assert [value for _, value in cells(html, "Effectiveness and cost")] == [
        f"{value:.4f}" for value in results.values.values()
    ]
    values = results.per_query["nDCG@10"]
    low, high = intervals({"nDCG@10": values})["nDCG@10"]
    mean = sum(values.values()) / 3
    assert f'<dd class="value">{mean:.3f} ± {(high - low) / 2:.3f}</dd>' in html
    worst = cells(html, "The queries with the lowest nDCG@10")
    # Its judged answer, the owl, has no ibex.
    assert (worst[0][0], worst[0][3][:5]) == ("ibex", "ibex:")
    assert worst[0][1] == f"{values['q3']:.4f}"
    shares = [row[-1] for row in cells(html, "The dimensions that cost most")]
    assert sum(float(share.rstrip("%")) for share in shares) == pytest.approx(100, abs=1)


def test_concepts_are_shown_by_their_atlas(tmp_path):
    index = build(tmp_path / "index", labels=["vowel a", "vowel e", "vowel i", "#3", "u"])
    html = build_report(index, QUERIES, QRELS)
    check(html)
    (about,) = re.findall(r"The concepts that tell documents apart, .*?: (.*?)\.", html)
    assert set(about.split(", ")) <= {"vowel a", "vowel e", "vowel i", "u"}
    assert "<mark>A</mark>bout ibex An ibex climbs" in html
    documents = int(index.engine.df[-5])
    assert f"No. 0, in {documents} documents ({documents / 5:.1%})" in html


HOSTILE = '</style><script>alert(1)</script><img src=x onerror="alert(2)">'


def test_hostile_text_is_shown_as_text(tmp_path):
    word = "\u202e\x1b<script>alert(3)</script>"
    texts = {f"<b>{name}</b>": f"{HOSTILE} {text}" for name, text in TEXTS.items()}
    labels = [f"{word} {n}" for n in range(5)]
    index = build(tmp_path / "<i>index", texts, labels=labels)
    queries = [Query(f"<u>{query.id}", f"{query.text} {HOSTILE}") for query in QUERIES]
    qrels = [Qrel(f"<u>{q.query_id}", f"<b>{q.document_id}</b>", 1) for q in QRELS]
    html = build_report(index, queries, qrels)
    page = check(html)
    assert not set(html) & {"\u202e", "\x1b"}
    assert "<script>alert(3)" in " ".join(page.text)


def test_queries_without_judgements_are_refused(tmp_path):
    with pytest.raises(InputError, match="without judgements"):
        build_report(build(tmp_path / "index"), QUERIES)


def test_passages():
    assert passage("a <b> c", 2, 5) == "a <mark>&lt;b&gt;</mark> c"
    text = passage("word " * 40 + "here\nthere " + "more " * 40, 200, 204)
    assert text.startswith("… word ")
    assert "word <mark>here</mark> there more" in text
    assert text.endswith("more …")
