"""Spans of words and concepts, sums over a real encoder, and explanations as text and HTML."""

import re
from dataclasses import replace
from html import unescape
from io import StringIO
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lexicept.cli.display import explanation_view, results_table
from lexicept.corpora import Document
from lexicept.explanation.contributions import (
    Contribution,
    Span,
    merged,
    spellings,
    split_spans,
    whole,
)
from lexicept.explanation.explanation import Explanation
from lexicept.explanation.html import explanation_page, highlighted
from lexicept.index.builder import IndexBuilder
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.stored import Hit
from lexicept.models.backbone import Backbone
from lexicept.models.encoder import Encoder
from lexicept.models.lookup import Lookup
from lexicept.vectorizers.concepts import ConceptVectorizer
from lexicept.vectorizers.words import WordVectorizer
from lexicept.weighting import BM25
from support.heads import KINDS, make, vocabulary_head
from support.tiny import text, tiny_backbone

LONG = f"{text(*range(1, 120, 7))} {text(*range(300))}"
"""Of several windows."""

SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda s: Span(s[0], s[0] + s[1]))
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_backbone(tmp_path_factory.mktemp("bert"))


def firing_words(encoder, content, task):
    """Dimension → characters of the word whose token adds most, each token taken for a text."""
    backbone, head = encoder
    acts, places = [], []
    for window in backbone.windows([content]):
        ((_, states),) = backbone.token_states([window])
        with torch.inference_mode():
            acts.append(head.pool(states, torch.arange(len(states)), len(states), task))
        places += [
            p for p, special in zip(window.offsets, window.special, strict=True) if not special
        ]
    values, tokens = torch.cat(acts).max(dim=0)
    return {d: places[tokens[d]] for d in torch.nonzero(values).ravel().tolist()}


@KINDS
@pytest.mark.parametrize("settings", [{}, {"query_k": 3, "document_k": 2}, {"pooling": "sum"}])
def test_a_concept_is_where_its_largest_activation_is(bert, kind, settings):
    encoder = make(bert, kind, **settings)
    vectorizer = ConceptVectorizer(encoder)
    for task, content in (("query", text(3, 8, 3)), ("document", LONG)):
        expected = firing_words(encoder, content, task)
        dimensions = list(range(vectorizer.size))
        if task == "query":
            spans = vectorizer.encode_query(content).spans(dimensions)
        else:
            (spans,) = vectorizer.document_spans([content], [dimensions])
        assert list(spans) == dimensions
        assert expected
        assert {d: span for d, found in spans.items() for span in found} == expected
    assert len(bert.windows([LONG])) > 3
    assert vectorizer.document_spans([""], [[0, 1]]) == [{0: (), 1: ()}]


def test_a_concept_takes_the_whole_word(bert):
    vectorizer = ConceptVectorizer(make(bert, "sae"))
    content = "Baba xyz-\u0061\u0301bc  dede"
    assert max(len(window.token_ids) for window in bert.windows([content])) > 9  # in pieces
    (found,) = vectorizer.document_spans([content], [range(vectorizer.size)])
    spelled = {content[start:end] for spans in found.values() for start, end in spans}
    assert spelled <= {"Baba", "xyz", "-", "\u0061\u0301bc", "dede"}
    assert "xyz" in spelled


def test_a_query_without_inference_has_the_tokens_that_name_a_dimension(bert):
    names = list(bert.tokenizer.get_vocab())
    head = vocabulary_head().with_rows(torch.randn(len(names), 32), torch.zeros(len(names)), names)
    lookup = Lookup.for_head(head, bert.tokenizer)
    vectorizer = ConceptVectorizer(Encoder.of(bert, head, lookup))
    baba, z, y = bert.tokenizer.convert_tokens_to_ids(["baba", "z", "##y"])
    assert vectorizer.encode_query("Baba zy baba").spans([baba, z, y, 0]) == {
        baba: ((0, 4), (8, 12)),
        z: ((5, 6),),
        y: ((6, 7),),
        0: (),
    }


@pytest.mark.parametrize("limits", [(None, None), (4, 20)])
@pytest.mark.parametrize("rra", [None, RRASettings(1.25)])
def test_scores_of_words_and_concepts_add_up(bert, tmp_path, limits, rra):
    documents = [Document(f"d{n}", text(*range(n, 9 * n, n)), text(n)) for n in range(1, 30)]
    documents.append(Document("long", LONG, "Baba"))
    builder = IndexBuilder(tmp_path / "index")
    builder.add_documents(documents, {})
    builder.add_vocabulary(WordVectorizer(), VocabularySettings(BM25()))
    concepts = ConceptVectorizer(make(bert, "sae"))
    builder.add_vocabulary(concepts, VocabularySettings(BM25(k3=1.0), *limits))
    index = builder.commit(rra)
    for number in (3, 11):
        query = f"{text(number, 2 * number)}, {text(number).upper()}"
        first, second, *_ = index.query_terms(query)
        names = [(term.vocabulary, term.dimension) for term in (first, second)]
        for steering in (None, dict(zip(names, (0.0, 7.5), strict=True))):
            hits = index.search(query, len(index), None, steering)
            scores = {hit.id: hit.score for hit in hits}
            assert len(scores) > 5
            for name in ("d1", "d3", "d11", "d20", "long"):
                found = index.explain(query, name, steering=steering)
                assert found.score == pytest.approx(scores.get(name, 0.0), rel=1e-6)
                for part in found.contributions:
                    assert part.query_spans
                    assert part.document_spans
                    if part.vocabulary == "words":
                        spelled = spellings(found.content, part.document_spans)
                        assert {word.lower() for word in spelled} == {part.term}
                kept = {(part.vocabulary, part.dimension) for part in found.contributions}
                assert steering is None or names[0] not in kept


def test_whole():
    accent = "e\u0301t \u0301a"
    assert whole(accent, 0, 1) == (0, 2)
    assert accent[slice(*whole(accent, 0, 4))] == "e\u0301t"  # the space goes
    assert whole("  ", 0, 2) == (2, 2)


@given(SPANS)
def test_merged_spans_hold_the_same_characters(spans):
    found = merged(spans)
    assert {i for span in found for i in range(*span)} == {i for s in spans for i in range(*s)}
    assert all(before.end < after.start for before, after in pairwise(found))


@given(st.text(" \tab\u0301", max_size=9), st.text(" \tcd\u0301", max_size=9), SPANS)
def test_spans_of_title_and_text_hold_the_content_of_both(title, body, spans):
    document = Document("d", body, title)
    parts = split_spans(document, spans)
    for span in spans:
        halves = split_spans(document, [span])
        found = "".join(
            part[start:end]
            for part, of_part in zip((title, body), halves, strict=True)
            for start, end in of_part
        )
        assert "".join(found.split()) == "".join(document.content[slice(*span)].split())
    for of_part, part in zip(parts, (title, body), strict=True):
        assert all(0 <= start < end <= len(part) for start, end in of_part)


def test_a_query_and_its_hits_run_the_backbone_once_each(bert, tmp_path, monkeypatch):
    builder = IndexBuilder(tmp_path / "index")
    texts = [text(number, number + 1) for number in range(12)]
    builder.add_documents([Document(str(n), content) for n, content in enumerate(texts)], {})
    builder.add_vocabulary(ConceptVectorizer(make(bert, "sae")), VocabularySettings(BM25(k3=1.0)))
    index = builder.commit()
    index.search("warm")  # loads the model, which runs to be measured
    encoded = []
    states = Backbone.states

    def counted(backbone, token_ids, mask):
        encoded.append(len(token_ids))
        return states(backbone, token_ids, mask)

    monkeypatch.setattr(Backbone, "states", counted)
    hits = index.search(text(3, 4), 5, explain=True)
    assert encoded == [1, 5]
    encoded.clear()
    assert index.search(text(3, 4), 5) == [replace(hit, explanation=None) for hit in hits]
    assert encoded == [1]
    for hit in hits:
        encoded.clear()
        alone = index.explain(text(3, 4), hit.id)
        assert encoded == [1, 1]
        assert alone == hit.explanation
        assert alone.score == pytest.approx(hit.score, rel=1e-6)


def test_spans_at_the_border_of_title_and_text():
    document = Document("d", "cat ", " A cat")
    assert document.content == "A cat cat"
    (found,) = WordVectorizer("en", ["cat"]).document_spans([document.content], [[0]])
    spans = found[0]
    assert split_spans(document, spans) == (((3, 6),), ((0, 3),))
    assert split_spans(Document("d", "cat"), [Span(0, 3)]) == ((), ((0, 3),))


@given(st.text("a<>&\"' \n", max_size=50), SPANS)
def test_highlighting_only_adds_marks(content, spans):
    html = highlighted(content, spans)
    assert unescape(re.sub("</?mark>", "", html)) == content
    inside = re.findall("<mark>(.*?)</mark>", html, re.DOTALL)
    assert "".join(map(unescape, inside)) == "".join(content[a:b] for a, b in merged(spans))
    assert set(re.findall("<[^>]*>", html)) <= {"<mark>", "</mark>"}


HOSTILE = "<img src=x onerror=alert(1)>"


def explained(document: Document) -> Explanation:
    owl = document.content.index("owl")
    part = Contribution("concepts", 7, HOSTILE, 3.0, 2.0, 1.5, (Span(0, 4),), (Span(owl, owl + 3),))
    return Explanation(f"OWLS {HOSTILE}", document.id, document.content, (part,), 1.0)


def test_a_page_of_hostile_texts():
    document = Document("d", f"owl & {HOSTILE}", HOSTILE)
    page = explanation_page(explained(document), document)
    assert "<img" not in page
    assert (
        f"<mark>OWLS</mark> {HOSTILE}".replace(HOSTILE, "&lt;img src=x onerror=alert(1)&gt;")
        in page
    )
    assert "<mark>owl</mark> &amp; &lt;img" in page
    assert "75.0%" in page
    assert "25.0%" in page
    outside = re.sub("&lt;.*?&gt;", "", page)
    assert not re.search("https?:|src=|href=|@import|url\\(|<script", outside)


def test_a_page_has_nothing_that_is_obeyed():
    bad = "\x1b[1m\u202e\ud800"
    part = Contribution(
        "concepts", 7, f"term{bad}", 3.0, 2.0, 1.5, (Span(0, len(bad)),), (Span(4, 4 + len(bad)),)
    )
    document = Document(f"d{bad}", f"owl {bad}\tand\r\nmore")
    for title in ("", f"title{bad}"):
        document = document._replace(title=title)
        page = explanation_page(
            Explanation(f"{bad} owl", document.id, document.content, (part,), 0.0), document
        )
        page.encode()
        assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page)
        assert "owl \ufffd[1m\ufffd\ufffd and \nmore" in re.sub("</?mark>", "", page)


def test_json():
    document = Document("d", "an owl")
    found = explained(document).to_json()
    assert found == {
        "query": f"OWLS {HOSTILE}",
        "document_id": "d",
        "content": "an owl",
        "score": 4.0,
        "prior": 1.0,
        "contributions": [
            {
                "vocabulary": "concepts",
                "dimension": 7,
                "term": HOSTILE,
                "score": 3.0,
                "query_weight": 2.0,
                "document_weight": 1.5,
                "query_spans": ((0, 4),),
                "document_spans": ((3, 6),),
                "share": 0.75,
            }
        ],
    }


def shown(renderable) -> tuple[str, str]:
    """As plain text, and with the codes of colours."""
    console = Console(file=StringIO(), width=200, force_terminal=True, record=True)
    console.print(renderable)
    return console.export_text(clear=False), console.export_text(styles=True)


def hit(document: Document, explanation: Explanation) -> Hit:
    stored = SimpleNamespace(titles=[document.title], texts=[document.text])
    return Hit(1, 4.0, document.id, stored, 0, explanation)


def test_results_show_the_passage_that_was_found():
    document = Document("d", "cat " + "x " * 500 + "\n\n the owl's   nest " + "y " * 500, "Birds")
    plain, styled = shown(results_table("owls", [hit(document, explained(document))]))
    assert "the owl's nest" in plain
    assert "cat" not in plain
    assert " 75% concept <img" in plain
    assert "OWLS → owl" in plain
    assert " 25% document prior" in plain
    assert "\x1b[1;35mowl\x1b[0m's" in styled


def test_a_whole_explanation_is_highlighted():
    document = Document("d", "in the text", "An owl")
    plain, styled = shown(explanation_view(explained(document), document))
    assert [line.split() for line in plain.splitlines()[:2]][1] == ["4.0000"]
    assert "\x1b[1;35mOWLS" in styled
    assert "\x1b[1;35mowl" in styled
    assert "in the text" in plain
