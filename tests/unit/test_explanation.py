"""Spans of words and concepts, sums over a real encoder, and explanations as text and HTML."""

import math
import re
from dataclasses import replace
from html import unescape
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lexicept.cli.display import explanation_view, results_table
from lexicept.corpora import Document
from lexicept.encoding.words import WordVectorizer
from lexicept.explanation.contributions import (
    Contribution,
    Sources,
    Span,
    ideas_of,
    shown_term,
    spelled,
    spellings,
    split_spans,
    strong_and_weak,
    whole,
)
from lexicept.explanation.explanation import Explanation
from lexicept.explanation.html import explanation_page, highlighted
from lexicept.explanation.similarity import WordPair, WordStates, described, word_pairs
from lexicept.index.hits import Hit
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from lexicept.queries.syntax import ParsedQuery
from lexicept.weighting import BM25
from support.heads import KINDS, make
from support.indexes import build_of
from support.tiny import count_read, save_bert, text

LONG = f"{text(*range(1, 120, 7))} {text(*range(300))}"
"""Of several windows."""

PIECES = "Baba xyz-\u0061\u0301bc  dede"
"""Of words that are cut into pieces."""

SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda s: Span(s[0], s[0] + s[1]))
)


def token_by_token(encoder, payload, task):
    """What each token adds to each dimension [tokens, size], taken for a text of its own, and the
    characters of its word, window by window."""
    backbone, head = encoder
    activations, positions = [], []
    for window in backbone.windows([payload]):
        ((_, states),) = backbone.token_states([window])
        with torch.inference_mode():
            activations.append(head.pool(states, torch.arange(len(states)), len(states), task))
        words = zip(window.word_spans(), window.left_out, strict=True)
        positions += [position for position, left_out in words if not left_out]
    return torch.cat(activations).double(), positions


def sources_of(vectorizer, payload, task):
    dimensions = list(range(vectorizer.size))
    if task == "query":
        explanation = vectorizer.encode_query(payload).sources(dimensions)
    else:
        (explanation,) = vectorizer.document_sources([payload], [dimensions])
    assert list(explanation) == dimensions
    return explanation


@KINDS
@pytest.mark.parametrize(
    ("pooling", "k"), [("max", None), ("max", 2), ("sum", 2), ("sqrt_sum", None)]
)
def test_a_concept_is_where_what_makes_its_weight_is(bert, head_type, pooling, k):
    """Where all that adds to a sum is, or the largest activation."""
    encoder = make(bert, head_type, pooling=pooling, query_k=k, document_k=k)
    vectorizer = ConceptVectorizer(encoder)
    for task, passage in (("query", text(3, 8, 3)), ("document", LONG), ("document", PIECES)):
        activations, positions = token_by_token(encoder, passage, task)
        if pooling == "max":  # the first of the largest counts alone
            values, tokens = activations.max(dim=0)
            activations = torch.zeros_like(activations).scatter(0, tokens[None], values[None])
        sums = activations.sum(dim=0)
        pooled = encoder.encode_activations([passage], task).toarray()[0]
        assert torch.allclose(
            sums.sqrt() if pooling == "sqrt_sum" else sums,
            torch.from_numpy(pooled).double(),
            rtol=1e-5,
        )
        explanation = sources_of(vectorizer, passage, task)
        fired = {d for d, sources in explanation.items() if sources.spans}
        assert fired == set(torch.nonzero(sums).ravel().tolist()) != set()
        for dimension in fired:
            expected: dict[tuple[int, int], float] = {}
            for activation, position in zip(
                activations[:, dimension].tolist(), positions, strict=True
            ):
                if activation:
                    expected[position] = expected.get(position, 0.0) + activation / float(
                        sums[dimension]
                    )
            sources = explanation[dimension]
            assert dict(zip(*sources, strict=True)) == pytest.approx(expected, rel=1e-3, abs=1e-7)
            assert math.fsum(sources.shares) == pytest.approx(1, abs=1e-12)
            assert [*sources.shares] == sorted(sources.shares, reverse=True)
    assert len(bert.windows([LONG])) > 3  # which overlap
    assert vectorizer.document_sources([""], [[0, 1]]) == [{0: ((), ()), 1: ((), ())}]


def test_a_concept_takes_the_whole_word(bert):
    vectorizer = ConceptVectorizer(make(bert, "sae"))
    passage = PIECES
    assert max(len(window.token_ids) for window in bert.windows([passage])) > 9
    (explanation,) = vectorizer.document_sources([passage], [range(vectorizer.size)])
    spelled = {
        passage[start:end] for sources in explanation.values() for start, end in sources.spans
    }
    assert spelled <= {"Baba", "xyz", "-", "\u0061\u0301bc", "dede"}
    assert "xyz" in spelled


@pytest.mark.parametrize("prompt", ["baba ", ""])
def test_a_prompt_and_special_tokens_that_count_keep_their_share(tmp_path, prompt):
    backbone = Backbone.from_pretrained(save_bert(tmp_path), special_tokens=not prompt)
    encoder = make(backbone, "sae", pooling="sqrt_sum")
    encoder.prompts = {"query": prompt, "document": ""}
    activations, positions = token_by_token(encoder, f"{prompt}dede", "query")
    word = (len(prompt), len(prompt) + 4)
    of_text = [i for i, position in enumerate(positions) if tuple(position) == word]
    sums, totals = activations[of_text].sum(dim=0), activations.sum(dim=0)
    assert (sums < totals).any()
    shares = (sums / totals.clamp(1e-9)).tolist()
    for dimension, sources in sources_of(ConceptVectorizer(encoder), "dede", "query").items():
        assert sum(sources.shares) == pytest.approx(shares[dimension], rel=1e-5)
        assert sources.spans in ((), ((0, 4),))


@pytest.mark.parametrize(
    ("pooling", "limits", "rra"),
    [("max", (None, None), RRASettings(1.25)), ("sqrt_sum", (4, 20), None)],
)
def test_scores_of_words_and_concepts_add_up(bert, tmp_path, limits, rra, pooling):
    documents = [Document(f"d{n}", text(*range(n, 9 * n, n)), text(n)) for n in range(1, 30)]
    documents.append(Document("long", LONG, "Baba"))
    words = WordVectorizer(), VocabularySettings(BM25())
    vectorizer = ConceptVectorizer(make(bert, "sae", pooling=pooling))
    concepts = vectorizer, VocabularySettings(BM25(k3=1.0), *limits)
    index = build_of(tmp_path / "index", documents, words, concepts, rra=rra)
    for i in (3, 11):
        query = f"{text(i, 2 * i)}, {text(i).upper()}"
        first, second, *_ = index.query_terms(query)
        names = [(term.vocabulary, term.dimension) for term in (first, second)]
        for steering in ({}, dict(zip(names, (0.0, 7.5), strict=True))):
            parsed = ParsedQuery(query, steering=steering)
            (hits,) = index.search([parsed], len(index))
            scores = {hit.id: hit.score for hit in hits}
            assert len(scores) > 5
            for name in ("d1", "d3", "d11", "d20", "long"):
                explanation = index.explain(parsed, name)
                assert explanation.score == pytest.approx(scores.get(name, 0.0), rel=1e-6)
                for contribution in explanation.contributions:
                    assert contribution.query_spans
                    assert contribution.document_spans
                    for shares in (contribution.query_shares, contribution.document_shares):
                        assert math.fsum(
                            contribution.score * share for share in shares
                        ) == pytest.approx(contribution.score, rel=1e-12)
                    if contribution.vocabulary == "words":
                        strings = spellings(explanation.content, contribution.in_document)
                        assert {word.lower() for word in strings} == {contribution.term}
                dimensions = {(c.vocabulary, c.dimension) for c in explanation.contributions}
                assert not steering or names[0] not in dimensions


def test_spans_are_of_whole_words_in_title_and_text():
    accent = "e\u0301t \u0301a"
    assert whole(accent, 0, 1) == (0, 2)
    assert accent[slice(*whole(accent, 0, 4))] == "e\u0301t"  # the space goes
    assert whole("  ", 0, 2) == (2, 2)
    document = Document("d", "cat ", " A cat")
    assert document.content == "A cat cat"
    (explanation,) = WordVectorizer("en", ["cat"]).document_sources([document.content], [[0]])
    assert split_spans(document, explanation[0].spans) == (((3, 6),), ((0, 3),))
    assert split_spans(Document("d", "cat"), [Span(0, 3)]) == ((), ((0, 3),))


def test_sources_and_spellings_by_hand():
    parts = [(Span(4, 7), 0.25), (Span(0, 3), 0.125), (Span(8, 9), 0.5), (Span(0, 3), 0.125)]
    merged = Sources.of(parts)
    assert merged == (((8, 9), (0, 3), (4, 7)), (0.5, 0.25, 0.25))
    assert strong_and_weak(merged) == ([(8, 9), (0, 3), (4, 7)], [])
    assert Sources.of([]) == Sources.alike([]) == ((), ())
    assert Sources.alike([Span(4, 5), Span(0, 1)]) == (((0, 1), (4, 5)), (0.5, 0.5))
    uneven = Sources.of([(Span(0, 1), 0.75), (Span(1, 2), 0.25)])
    assert strong_and_weak(uneven) == ([(0, 1)], [(1, 2)])
    content = "Cat cats cat dog owl"
    positions = [Span(0, 3), Span(4, 8), Span(9, 12), Span(13, 16), Span(17, 20)]
    sources = Sources.of(zip(positions, (0.125, 0.5, 0.125, 0.1875, 0.0625), strict=True))
    assert spellings(content, sources) == {"cats": 0.5, "Cat": 0.25, "dog": 0.1875, "owl": 0.0625}
    assert spelled(content, sources) == "cats 50%, Cat 25%, dog 19%, owl 6%"
    assert spelled(content, sources, 2) == "cats 50%, Cat 25%, 2 more 25%"
    assert spelled(content, Sources.alike([positions[2], positions[0]])) == "Cat"
    assert spelled(content, Sources()) == ""


@given(st.text(" \tab\u0301", max_size=9), st.text(" \tcd\u0301", max_size=9), SPANS)
def test_spans_of_title_and_text_hold_the_content_of_both(title, body, spans):
    document = Document("d", body, title)
    spans_of_fields = split_spans(document, spans)
    for span in spans:
        halves = split_spans(document, [span])
        result = "".join(
            fragment[start:end]
            for fragment, of_part in zip((title, body), halves, strict=True)
            for start, end in of_part
        )
        assert "".join(result.split()) == "".join(document.content[slice(*span)].split())
    for of_part, field in zip(spans_of_fields, (title, body), strict=True):
        assert all(0 <= start < end <= len(field) for start, end in of_part)


def test_a_query_and_its_hits_run_the_backbone_once_each(bert, tmp_path, monkeypatch):
    texts = {str(i): text(i, i + 1) for i in range(12)}
    concepts = ConceptVectorizer(make(bert, "sae")), VocabularySettings(BM25(k3=1.0))
    index = build_of(tmp_path / "index", texts, concepts)
    index.search(["warm"])[0]  # loads the model, which runs to be measured
    encoded = count_read(monkeypatch, Backbone)
    hits = index.search([text(3, 4)], 5, explain=True)[0]
    assert encoded == [1, 5]
    encoded.clear()
    assert index.search([text(3, 4)], 5)[0] == [replace(hit, explanation=None) for hit in hits]
    assert encoded == [1]
    for hit in hits:
        encoded.clear()
        alone = index.explain(text(3, 4), hit.id)
        assert encoded == [1, 1]
        assert alone == hit.explanation
        assert alone.score == pytest.approx(hit.score, rel=1e-6)


@given(st.text("a<>&\"' \n", max_size=50), SPANS)
def test_highlighting_only_adds_marks(payload, spans):
    html = highlighted(payload, spans)
    assert unescape(re.sub("</?mark>", "", html)) == payload
    inside = re.findall("<mark>(.*?)</mark>", html, re.DOTALL)
    within = {position for span in spans for position in range(*span)}
    expected = "".join(letter for position, letter in enumerate(payload) if position in within)
    assert "".join(map(unescape, inside)) == expected
    assert "</mark><mark>" not in html
    assert set(re.findall("<[^>]*>", html)) <= {"<mark>", "</mark>"}


HOSTILE = "<img src=x onerror=alert(1)>"


def explained(document: Document) -> Explanation:
    owl = document.content.index("owl")
    contribution = Contribution(
        "concepts", 7, HOSTILE, 3.0, 2.0, 1.5, (Span(0, 4),), (1.0,), (Span(owl, owl + 3),), (1.0,)
    )
    return Explanation(f"OWLS {HOSTILE}", document.id, document.content, (contribution,), 1.0)


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
    contribution = Contribution(
        "concepts",
        7,
        f"term{bad}",
        *(3.0, 2.0, 1.5),
        *Sources.alike([Span(0, len(bad))]),
        *Sources.alike([Span(4, 4 + len(bad))]),
    )
    document = Document(f"d{bad}", f"owl {bad}\tand\r\nmore")
    for title in ("", f"title{bad}"):
        document = document._replace(title=title)
        page = explanation_page(
            Explanation(f"{bad} owl", document.id, document.content, (contribution,), 0.0), document
        )
        page.encode()
        assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page)
        assert "owl \ufffd[1m\ufffd\ufffd and \nmore" in re.sub("</?mark>", "", page)


def shown(renderable) -> tuple[str, str]:
    """As plain text, and with the codes of colours."""
    console = Console(file=StringIO(), width=200, force_terminal=True, record=True)
    console.print(renderable)
    return console.export_text(clear=False), console.export_text(styles=True)


def hit(document: Document, explanation: Explanation) -> Hit:
    fields = SimpleNamespace(of=lambda n: {})
    stored = SimpleNamespace(titles=[document.title], texts=[document.text], fields=fields)
    return Hit(1, 4.0, document.id, stored, 0, explanation=explanation)


def test_results_and_explanations_on_a_terminal():
    document = Document("d", "cat " + "x " * 500 + "\n\n the owl's   nest " + "y " * 500, "Birds")
    plain, _ = shown(results_table("owls", [hit(document, explained(document))], ["the nest"]))
    assert "the nest" in plain
    assert " 75% <img" in plain
    assert "OWLS → owl" in plain
    assert " 25% document prior" in plain
    document = Document("d", "in the text", "An owl")
    plain, styled = shown(explanation_view(explained(document), document))
    assert [line.split() for line in plain.splitlines()[:2]][1] == ["4.0000"]
    assert "\x1b[1;35mOWLS" in styled
    assert "\x1b[1;35mowl" in styled
    assert "in the text" in plain
    document = Document("d", "an owl and a nest")
    sources = Sources.of([(Span(3, 6), 0.75), (Span(13, 17), 0.25)])
    contribution = Contribution(
        "concepts", 7, "bird", 3.0, 2.0, 1.5, (Span(0, 4),), (1.0,), *sources
    )
    explanation = Explanation("owls", "d", document.content, (contribution,), 0.0)
    page = explanation_page(explanation, document)
    assert 'an <mark>owl</mark> and a <mark class="weak">nest</mark>' in page
    assert "owl 75%, nest 25%" in page
    assert "owl 75%, nest 25%" in repr(explanation)
    results = results_table("owls", [hit(document, explanation)], [""])
    assert "owl 75%, nest 25%" in shown(results)[0]
    plain, styled = shown(explanation_view(explanation, document))
    assert "owl 75%, nest 25%" in plain
    assert "\x1b[1;35mowl\x1b[0m" in styled
    assert "\x1b[35mnest\x1b[0m" in styled
    both = contribution._replace(
        term="nest", document_spans=(Span(13, 17),), document_shares=(1.0,)
    )
    page = explanation_page(
        Explanation("owls", "d", document.content, (contribution, both), 0.0), document
    )
    assert "an <mark>owl</mark> and a <mark>nest</mark>" in page  # one dimension has it as strong


def test_a_concept_without_a_name_is_called_after_what_fires_it():
    document = Document("d", "two fractures, or fractured bones")
    spans = (Span(18, 27), Span(4, 13))
    contribution = Contribution(
        "concepts", 7, "#7", 3.0, 2.0, 1.5, (Span(2, 10),), (1.0,), spans, (0.6, 0.4)
    )
    query = "a Fracture"
    explanation = Explanation(query, "d", document.content, (contribution,), 0.0)
    assert shown_term(contribution, query, document.content) == "Fracture ↔ fractured"
    assert "Fracture ↔ fractured  meaning  Fracture" in repr(explanation)
    assert '<span class="concepts">Fracture ↔ fractured</span>' in explanation_page(
        explanation, document
    )
    assert "Fracture ↔ fractured " in shown(explanation_view(explanation, document))[0]
    line = "100% Fracture ↔ fractured  meaning"
    plain, _ = shown(results_table(query, [hit(document, explanation)], [""]))
    assert f"{line}  Fracture → fractured 60%, fractures 40%" in plain
    noted = replace(explanation, stop_words=("how", "\x1b"))
    for view in (shown(explanation_view(noted, document))[0], repr(noted)):
        assert "not searched as words: how, \ufffd" in view
    assert '<p class="legend">Not searched as words: how, \ufffd</p>' in noted._repr_html_()
    single = contribution._replace(document_spans=spans[:1], document_shares=(1.0,))
    cause = replace(explanation, contributions=(single,))
    plain, _ = shown(results_table(query, [hit(document, cause)], [""]))
    assert line in [text.strip() for text in plain.splitlines()[-2:]]
    named = contribution._replace(term="bones #7")
    assert shown_term(named, query, document.content) == "bones #7"
    word = contribution._replace(vocabulary="words")
    without = contribution._replace(query_spans=(), query_shares=())
    for other in (word, without):
        assert shown_term(other, query, document.content) == "#7"


def test_the_similarity_is_a_part_of_every_view_in_order_of_size():
    document = Document("d", "an owl and a nest")
    contribution = Contribution("words", 7, "owl", 3.0, 2.0, 1.5, (Span(0, 4),), (1.0,), (), ())
    weak = contribution._replace(dimension=8, term="nest", score=1.0)
    explanation = Explanation(
        "owls", "d", document.content, (contribution, weak), 0.5, similarity=5.5
    )
    assert explanation.score == 10.0
    assert [tuple(whole) for whole in explanation.whole_parts] == [
        ("similar as a whole", "similarity", 5.5, ""),
        ("document prior", "prior", 0.5, ""),
    ]
    assert explanation.to_json()["similarity"] == 5.5
    table, _ = shown(results_table("owls", [hit(document, explanation)], [""]))
    assert re.findall(r"(\d+)% (similar as a whole|owls  word|document prior)", table) == [
        ("55", "similar as a whole"),
        ("30", "owls  word"),
        ("10", "owls  word"),
        ("5", "document prior"),
    ]
    page = explanation_page(explanation, document)
    shares = ["55.0%", "30.0%", "10.0%", "5.0%"]
    for view in (repr(explanation), shown(explanation_view(explanation, document))[0], page):
        assert re.findall(r"\b(?:55|30|10|5)\.0%(?!\")", view) == shares
        assert "similar as a whole" in view
    assert '<th scope="row" class="similarity">similar as a whole</th>' in page
    assert '<span class="similarity">similar as a whole</span>' in page


def test_a_word_and_concepts_named_by_it_are_one_idea():
    query = "bone loss"
    left, two = ((Span(0, 4),), (1.0,)), ((Span(0, 4), Span(5, 9)), (0.6, 0.4))
    first = Contribution("concepts", 7, "bone #7", 3.0, 1.5, 2.0, *left, (), (), "bone")
    second = Contribution("concepts", 9, "bone #9", 1.0, 2.0, 0.5, *two, (), (), "bone")
    word = Contribution("words", 2, "bone", 3.5, 1.0, 3.5, *left, (), (), "bone")
    other = Contribution("words", 3, "loss", 8.0, 1.0, 8.0, (), (), (), (), "loss")
    loss, bone = ideas_of([other, word, first, second], query, "bones")
    assert (loss.name, loss.score, loss.composition(16)) == ("loss", 8.0, "word")
    assert (bone.name, bone.vocabulary, bone.score) == ("bone", "words", 7.5)
    assert bone.composition(15) == "word 23%, meaning 27%"
    assert bone.parts == (word, first, second)
    assert bone.in_query.shares == pytest.approx((7.1 / 7.5, 0.4 / 7.5))
    (alone,) = ideas_of([second], query, "bones")
    assert (alone.name, alone.composition(1)) == ("bone", "meaning")


def test_a_cosine_is_the_sum_over_pairs_of_words():
    query_states = WordStates([Span(0, 3), Span(4, 7)], np.array([[1, 0], [0, 2]], np.float32))
    met = WordStates(
        [Span(0, 3), Span(4, 7), Span(8, 11)], np.array([[3, 1], [0, 1], [1, 0]], np.float32)
    )
    pairs = word_pairs("cat the", query_states, "Dog the dog", met, lambda word: [word])
    # (1, 2) · (4, 2) = 8: cat meets dog twice, the meets both.
    assert pairs == (
        WordPair("cat", "dog", 0.5),
        WordPair("the", "dog", 0.25),
        WordPair("the", "the", 0.25),
    )
    assert described(pairs) == "cat ↔ dog, the ↔ the"
    terms = word_pairs(
        "cat the", query_states, "Dog the dog", met, lambda word: [word] * (word != "the")
    )
    assert terms == pairs[:1]
    opposite = WordStates(query_states.spans, -query_states.states)
    assert word_pairs("cat the", opposite, "Dog the dog", met, lambda word: [word]) == ()
