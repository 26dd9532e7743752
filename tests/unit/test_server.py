"""The HTTP API: what every address answers and refuses; nothing is a server error."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from fastapi.testclient import TestClient
from hypothesis import Phase, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

import lexicept
from lexicept.errors import InputError
from lexicept.explanation.contributions import Sources, Span
from lexicept.fields.filters import parse as parse_filter
from lexicept.index.feedback import like, with_feedback
from lexicept.index.reader import IndexReader
from lexicept.queries.syntax import ParsedQuery
from lexicept.server import reader, routes
from lexicept.server.app import PAGE, create_app, from_environment
from lexicept.server.metrics import REGISTRY
from lexicept.server.reader import SearchRequest
from support.served import DOCUMENTS, HOSTILE, save_index

QUERY = "bade kilo muki"
BASE = "http://127.0.0.1"
MALFORMED = (
    *("/search", "/query", "/query_body", "/feedback", "/explain"),
    *("/concepts", "/concepts/{number}"),
)
"""Addresses that take more than a text."""
ADDRESSES = (*MALFORMED, "/activations", "/document", "/examples", "/fields", "/health", "/metrics")


@pytest.fixture(scope="module")
def index(served_index):
    return IndexReader.open(served_index)


@pytest.fixture(scope="module")
def client(served_index):
    with TestClient(create_app(served_index), base_url=BASE) as client:
        yield client


@pytest.fixture(scope="module")
def words_only(served_words):
    return TestClient(create_app(served_words), base_url=BASE)


def get(client: TestClient, address: str, **parameters: Any) -> Any:
    response = client.get(address, params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("vocabulary", [None, "concepts"])
def test_search_is_the_indexs(client, index, vocabulary):
    options = {} if vocabulary is None else {"vocabulary": vocabulary}
    answer = get(client, "/search", query=QUERY, top_k=5, **options)
    hits = [(hit.id, hit.score) for hit in index.search([QUERY], 5, vocabulary)[0]]
    assert answer["query"] == QUERY
    assert [(hit["id"], hit["score"]) for hit in answer["results"]] == hits
    assert [hit["rank"] for hit in answer["results"]] == [1, 2, 3, 4, 5]
    for one in answer["results"]:
        document = index.document(one["id"])
        assert (one["title"], one["excerpt"]) == (document.title, document.text)
        assert one["fields"] == document.fields


def test_filters_and_counts(client, index):
    given = "number < 20 and part in ['odd']"
    answer = get(client, "/search", query=QUERY, filter=given, facet=["part", "day"])
    everything = index.search([QUERY], 31)[0]
    odd = [hit for hit in everything if hit.number < 20 and hit.number % 2]
    expected = [(hit.id, hit.score) for hit in odd][:10]
    assert [(hit["id"], hit["score"]) for hit in answer["results"]] == expected
    assert answer["results"][0]["fields"] == odd[0].fields
    assert answer["facets"]["part"] == [
        {"value": value, "documents": len(odd)} for value in ("all", "odd")
    ]
    days = sorted(f"2020-01-{hit.number + 1:02}" for hit in odd)
    assert answer["facets"]["day"] == [{"value": day, "documents": 1} for day in days]
    assert get(client, "/search", query=QUERY)["facets"] == {}


def test_fields(client):
    known = {"documents": 30, "offered": True}
    numbers = [{"value": float(n), "documents": 1} for n in range(8)]
    days = [{"value": f"2020-01-{n:02}", "documents": 1} for n in range(1, 9)]
    parts = [{"value": v, "documents": n} for v, n in (("all", 30), ("even", 15), ("odd", 15))]
    assert get(client, "/fields")["fields"] == [
        {"name": "number", "kind": "number", "many": False, **known, "values": numbers},
        {"name": "part", "kind": "keyword", "many": True, **known, "values": parts},
        {"name": "day", "kind": "date", "many": False, **known, "values": days},
    ]
    document = get(client, "/document", document_id="d3")
    assert document["fields"] == {"number": 3, "part": ["all", "odd"], "day": "2020-01-04"}


@pytest.mark.parametrize("vocabulary", [None, "words", "concepts"])
def test_matches_are_the_explanations_contributions(client, index, vocabulary):
    chosen = {} if vocabulary is None else {"vocabulary": vocabulary}
    plain = get(client, "/search", query=QUERY, **chosen)["results"]
    found = get(client, "/search", query=QUERY, matches=True, **chosen)["results"]
    names = [name for name in found[0] if name != "matches"]
    assert plain == [{name: one[name] for name in names} for one in found]
    for one in found:
        explained = index.explain(QUERY, one["id"], vocabulary)
        shared = [(m["vocabulary"], m["dimension"], m["score"]) for m in one["matches"]]
        assert shared == [
            (part.vocabulary, part.dimension, pytest.approx(part.score))
            for part in explained.contributions
        ]
        words = {m["word"] for m in one["matches"] if m["vocabulary"] == "words"}
        assert words == {p.term for p in explained.contributions if p.vocabulary == "words"}


def test_what_a_search_says_of_its_words(client):
    answer = get(client, "/search", query="zzaxqv")
    assert answer["unmatched_words"] == ["zzaxqv"]
    assert answer["note"] == "no document contains: zzaxqv; results are by meaning only"
    assert answer["results"]
    answer = get(client, "/search", query=QUERY)
    assert (answer["unmatched_words"], answer["note"]) == ([], "")
    answer = get(client, "/search", query="kilox muki", vocabulary="words")
    assert answer["did_you_mean"] == "kilo muki"


def test_steering(client, index):
    weights = {(t.vocabulary, t.dimension): t.weight for t in index.query_terms(QUERY)}
    name, concept_id = next(key for key in weights if key[0] == "concepts")
    steer = [f"{name}:{concept_id}:0", "words:1:2.5"]
    steering = {(name, concept_id): 0.0, ("words", 1): 2.5}
    hits = get(client, "/search", query=QUERY, steer=steer)["results"]
    assert [(hit["id"], hit["score"]) for hit in hits] == [
        (hit.id, hit.score) for hit in index.search([ParsedQuery(QUERY, steering=steering)])[0]
    ]
    assert hits != get(client, "/search", query=QUERY)["results"]
    terms = get(client, "/query", query=QUERY, steer=steer)["terms"]
    left = {(term["vocabulary"], term["dimension"]): term["weight"] for term in terms}
    expected = {key: weight * steering.get(key, 1) for key, weight in weights.items()}
    del expected[name, concept_id]
    assert left == pytest.approx(expected)


def test_a_query_without_anything_left_finds_nothing(client, index):
    for query in ("", "\0", "the"):
        assert get(client, "/search", query=query, vocabulary="words")["results"] == []
    all_terms = [f"{t.vocabulary}:{t.dimension}:0" for t in index.query_terms(QUERY)]
    assert get(client, "/search", query=QUERY, steer=all_terms)["results"] == []


def test_query_terms_show_where_they_are(client, index):
    about = get(client, "/query", query=f"{QUERY} a to a", vocabulary="words")
    assert about["stop_words"] == ["a", "to"]
    terms = [(term["term"], term["weight"]) for term in about["terms"]]
    assert terms == [("bade", 1.0), ("kilo", 1.0), ("muki", 1.0)]
    spans = [span for term in about["terms"] for span in term["spans"]]
    assert [QUERY[span["start"] : span["end"]] for span in spans] == ["bade", "kilo", "muki"]
    sources = Sources((Span(0, 3), Span(4, 8), Span(9, 10)), (0.5, 0.3, 0.2))
    # Stop words and punctuation get no spans.
    assert routes.spans(index, "the kilo `", sources) == [{"start": 4, "end": 8, "share": 0.3}]


def test_explanations_are_the_indexs(client, index):
    (hit, *_) = index.search([QUERY], 1)[0]
    why = get(client, "/explain", query=f"{QUERY} a", document_id=hit.id)
    expected = index.explain(f"{QUERY} a", hit.id).to_json()
    contributions, expected_ones = why.pop("contributions"), expected.pop("contributions")
    texts = {"text": f"{QUERY} a", "passage": None, "title": hit.document.title}
    assert why == json.loads(json.dumps(expected)) | texts
    assert why["stop_words"] == ["a"]
    content = {"query": why["query"], "document": why["content"]}
    for ours, theirs in zip(contributions, expected_ones, strict=True):
        for side, text in content.items():
            sources = Sources(theirs[f"{side}_spans"], theirs[f"{side}_shares"])
            assert ours.pop(f"{side}_spans") == routes.spans(index, text, sources)
        assert ours == {name: theirs[name] for name in ours}


@pytest.mark.parametrize(
    "template", ["javascript:{path}", "https://example.org/", "https://example.org/{id}", "{path}"]
)
def test_a_template_of_links_is_an_address(served_words, template):
    with pytest.raises(InputError, match=r"document_url must be like https://…/\{path\} or"):
        create_app(served_words, document_url=template)


def test_hostile_text_is_json_text(client):
    assert get(client, "/document", document_id=HOSTILE.id) == HOSTILE._asdict() | {"passages": []}
    explanation = get(client, "/explain", query="kilo", document_id=HOSTILE.id, vocabulary="words")
    assert explanation["title"] == HOSTILE.title
    (contribution,) = explanation["contributions"]
    spans = [
        explanation["content"][span["start"] : span["end"]]
        for span in contribution["document_spans"]
    ]
    assert spans == ["kilo", "kilo"]  # counted in code points: one is behind an emoji


def test_concepts(client, index):
    listed = get(client, "/concepts", top_k=1000)
    numbers = [n for c in listed["concepts"] for n in (c["number"], *c["alike"])]
    assert sorted(numbers) == sorted(index.atlas.useful)
    assert numbers[0] == index.atlas.useful[0]
    assert len(listed["concepts"]) == listed["total"]
    first = listed["concepts"][0]
    assert first["words"] == [word for word, _ in index.atlas[numbers[0]].words[:6]]
    named = get(client, "/concepts", search=first["label"].upper())["concepts"]
    assert numbers[0] in [concept["number"] for concept in named]
    assert get(client, "/concepts", search="no such label")["total"] == 0
    one = get(client, f"/concepts/{numbers[0]}", top_k=5)
    assert (one["label"], one["documents"]) == (first["label"], first["documents"])
    vectors = index.document_vectors().select("concepts").weights.tocsc()
    column = vectors[:, [numbers[0]]].toarray()[:, 0]
    weights = [document["weight"] for document in one["top_documents"]]
    assert weights == sorted(column.tolist(), reverse=True)[:5]
    for document in one["top_documents"]:
        assert column[index.document_number(document["id"])] == document["weight"]


def test_activations_of_a_text(client, index):
    output = get(client, "/activations", text="the cat sat")
    assert output == index.activations("the cat sat").to_json()
    token = output["tokens"][0]["activations"][0]
    assert token["label"] == index.atlas.labels[token["number"]]


def test_a_concept_is_the_atlas(client, index):
    number = index.atlas.most_frequent()[0]
    concept, response = index.atlas[number], get(client, f"/concepts/{number}")
    assert response["source"] == concept.source
    assert response["firing_frequency"] == concept.firing_frequency
    assert [(one["word"], one["z"]) for one in response["words"]] == list(concept.words)
    nearest = [(one["number"], one["cosine"]) for one in response["nearest"]]
    assert nearest == list(concept.nearest)
    assert response["nearest"][0]["label"] == index.atlas.labels[nearest[0][0]]
    assert response["examples"]
    for ours, theirs in zip(response["examples"], concept.examples, strict=True):
        text = index.document(theirs.document_id).content
        assert ours["fired"] == text[theirs.start : theirs.end]
        assert ours["before"] + ours["fired"] + ours["after"] == text  # short documents


def test_concepts_that_were_never_described(tmp_path):
    client = TestClient(create_app(save_index(tmp_path, atlas=False)), base_url=BASE)
    listed = get(client, "/concepts", search="#", top_k=1000)
    assert listed["total"] == len(listed["concepts"]) > 10
    number = listed["concepts"][0]["number"]
    concept = get(client, f"/concepts/{number}")
    assert concept["label"] == f"#{number}"
    assert concept["documents"] == listed["concepts"][0]["documents"] > 0
    described = (concept["source"], concept["firing_frequency"], concept["words"])
    assert described == (None, None, [])
    assert concept["top_documents"]


def test_health(client, words_only):
    health = get(client, "/health")
    assert (health["status"], health["documents"]) == ("ok", len(DOCUMENTS))
    assert (health["unit"], health["document_url"]) == ("documents", None)
    assert datetime.fromisoformat(health["changed"]) <= datetime.now(UTC)
    assert health["vocabularies"][1] == {"name": "concepts", "size": 64}
    assert [v["name"] for v in get(words_only, "/health")["vocabularies"]] == ["words"]


def counted(path: str, status: int) -> float:
    """The answers so far of an address with a status."""
    labels = {"path": path, "status": str(status)}
    return REGISTRY.get_sample_value("lexicept_requests_total", labels) or 0.0


def test_metrics_count_by_route(words_only):
    before = counted("/document", 404)
    for i in range(3):
        words_only.get(f"/document?document_id=unknown-{i}")
    assert counted("/document", 404) == before + 3
    line = f'lexicept_requests_total{{path="/document",status="404"}} {before + 3}'
    assert line in words_only.get("/metrics").text


BAD = [
    ("/search", 422, "query: Field required"),
    ("/search?query=a&top_k=1000000000", 422, "top_k: Input should be less than or equal to 1000"),
    ("/search?query=a&steer=words:1:2&steer=words:1:nan", 422, "steer.1"),
    ("/search?query=a&steer=concepts:64:0", 404, "no number 64 in concepts, which are 0 to 63"),
    ("/search?query=a&filter=number+~+1", 422, "filter at character 8: unexpected '~ 1'"),
    ("/search?query=a&filter=colour+=+1", 422, "there is no field 'colour', only: number, part"),
    ('/search?query="to be"', 422, "to be"),
    ("/search?query=a&facet=colour", 404, "this index has no field 'colour'"),
    ("/search?query=a&like=none", 404, "no document of that id"),
    ("/feedback?query=a&document_id=none", 404, "no document of that id"),
    ("/search?query=a&topk=3", 422, "no parameter 'topk'; perhaps top_k?"),
    ("/health?a=1", 422, "no parameter 'a'; there are none"),
    ("/explain?query=a&document_id=d99", 404, "no document of that id"),
    ("/concepts/64", 404, "no number 64 in concepts"),
    ("/concepts/" + "9" * 5000, 422, "number"),
    ("/document?document_id=%ff%fe", 404, "no document of that id"),
    ("/page.js/../../app.py", 404, "Not Found"),
]


@pytest.mark.parametrize(("address", "status", "reason"), BAD, ids=lambda value: str(value)[:40])
def test_bad_requests(client, address, status, reason):
    response = client.get(address)
    assert response.status_code == status, response.text
    assert reason in response.json()["detail"]
    assert len(response.content) < 10_000  # the input is not sent back


@pytest.mark.parametrize(
    "address",
    [
        *("/activations?text=a", "/concepts", "/concepts/1"),
        *("/search?query=a&vocabulary=concepts", "/search?query=a&steer=concepts:1:0"),
    ],
)
def test_an_index_without_concepts_says_so(words_only, address):
    response = words_only.get(address)
    assert response.status_code == 404
    assert response.json()["detail"] == "this index has no concepts, only words"


FOREIGN = ("example.com", "127.0.0.1.example.com", "")
OWN = ("localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000")


@pytest.mark.parametrize("host", [*FOREIGN, *OWN])
def test_foreign_names_of_this_machine_are_refused(client, host):
    status = 400 if host in FOREIGN else 200
    assert client.get("/health", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("host", "name", "foreign"),
    [
        ("127.0.0.2", "127.0.0.2", 400),
        ("::ffff:127.0.0.1", "[::ffff:127.0.0.1]", 400),
        ("0.0.0.0", "search.example.com", 200),
    ],
)
def test_only_a_loopback_address_has_names_of_its_own(served_words, host, name, foreign):
    client = TestClient(create_app(served_words, host), base_url=f"http://{name}:8000")
    assert client.get("/health").status_code == 200
    assert client.get("/health", headers={"host": "localhost"}).status_code == 200
    assert client.get("/health", headers={"host": "example.com"}).status_code == foreign


def test_no_other_site_can_read_it(client):
    response = client.get("/search?query=a", headers={"origin": "http://example.com"})
    assert "access-control-allow-origin" not in response.headers
    assert response.headers["cross-origin-resource-policy"] == "same-origin"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


def test_the_page_is_complete_and_asks_no_other_machine(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    paths = re.findall(r'(?:src|href)="(/[^"]*)"', page.text)
    assert {"/page.js", "/page.css", "/icon.svg"} <= set(paths)
    for address in paths:
        assert client.get(address).status_code == 200
    assert 'id="swagger"' in client.get("/docs").text
    for file in PAGE.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|url\(|@import|innerHTML|insertAdjacentHTML|eval\(", text)


def test_searches_answered_together_are_those_answered_alone(index):
    def wanted(query, top_k=3, vocabulary=None, **more):
        parsed = replace(index.parse(query), **more)
        return SearchRequest(index, parsed, top_k, vocabulary, *index.query_masks([parsed]))

    searches = [
        wanted("bade"),
        wanted("kilo muki"),
        wanted("kilo muki", steering={("words", 23): 0.0}),
        wanted(""),
        wanted("kilo", 2, vocabulary="concepts"),
        wanted("bade"),
        wanted("kilo muki", filter=parse_filter("number > 12")),
        wanted("kilo muki", filter=parse_filter("number > 20")),
        wanted("kilo -muki"),
        wanted("kilo number:>20"),
        wanted("number:>20"),
    ]
    found = reader.search_together(searches)
    for search, hits in zip(searches, found, strict=True):
        (alone,) = reader.search_together([search])
        assert isinstance(hits, list)
        assert [hit.id for hit in hits] == [hit.id for hit in alone]
        scores = [hit.score for hit in alone]
        assert [hit.score for hit in hits] == pytest.approx(scores, rel=1e-6, abs=1e-6)


def test_pages_of_results_and_their_number(client, index):
    parameters = {"query": f"{QUERY} -bade", "count": True, "top_k": 4}
    top = get(client, "/search", **parameters)
    second = get(client, "/search", **parameters, offset=4)
    hits = index.search([index.parse(parameters["query"])], 100)[0]
    assert top["total"] == second["total"] == len(hits)
    found = [(hit["id"], hit["rank"]) for hit in top["results"] + second["results"]]
    assert found == [(hit.id, hit.rank) for hit in hits[:8]]
    assert get(client, "/search", query=QUERY)["total"] is None
    assert get(client, "/search", **parameters, offset=999)["results"] == []


def test_feedback_is_what_is_added(client, index):
    hits = index.search([QUERY], 3)[0]
    terms = get(client, "/feedback", query=QUERY, document_id=[hit.id for hit in hits])["terms"]
    assert terms == get(client, "/feedback", query=QUERY)["terms"]
    expected = with_feedback(index, ParsedQuery(QUERY), 3)
    added = {(term["vocabulary"], term["dimension"]): term["weight"] for term in terms}
    assert added == expected.added
    add = [f"{name}:{dimension}:{weight}" for (name, dimension), weight in added.items()]
    answer = get(client, "/search", query=QUERY, add=add, boost="words:0.5")
    boosted = index.search([replace(expected, boosts={"words": 0.5})])[0]
    assert [hit["id"] for hit in answer["results"]] == [hit.id for hit in boosted]
    terms = get(client, "/query", query=QUERY, add=add)["terms"]
    assert {(term["vocabulary"], term["dimension"]) for term in terms} >= set(added)


def test_documents_like_one(client, index):
    answer = get(client, "/search", query="", like="d3")
    expected = index.search([like(index, "d3")])[0]
    assert [hit["id"] for hit in answer["results"]] == [hit.id for hit in expected]
    why = get(client, "/explain", query="", like="d3", document_id=expected[0].id)
    assert why["score"] == pytest.approx(expected[0].score)
    # Feedback adds to what the document has.
    terms = get(client, "/feedback", query="", like="d3", document_id="d1")["terms"]
    add = [f"{term['vocabulary']}:{term['dimension']}:{term['weight']:.6f}" for term in terms]
    hits = get(client, "/search", query="", like="d3", add=add)["results"]
    expected = index.search([with_feedback(index, like(index, "d3"), ["d1"])])[0]
    assert [hit["id"] for hit in hits] == [hit.id for hit in expected]
    assert [hit["score"] for hit in hits] == pytest.approx([h.score for h in expected], rel=1e-4)


def test_who_finds_too_many_waiting_is_turned_away(served_index, monkeypatch):
    monkeypatch.setattr(reader, "MOST_WAITING", 2)

    async def flood():
        queue = reader.Reader(served_index, query_cache=0)
        by_all = SearchRequest(queue.generation.index, ParsedQuery(QUERY), 3, None, None)
        searches = [asyncio.create_task(queue.search(by_all)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(reader.BusyError):
            await queue.run(lambda: None)
        assert await queue.search(replace(by_all, vocabulary="words"))  # needs no model
        searches[0].cancel()
        responses = await asyncio.gather(*searches, return_exceptions=True)
        types = [type(response) for response in responses]
        assert types == [asyncio.CancelledError, list] + [reader.BusyError] * 3
        assert await queue.search(by_all)

    asyncio.run(flood())


def test_being_turned_away_is_said_and_counted(served_index, monkeypatch):
    monkeypatch.setattr(reader, "MOST_WAITING", 0)
    before = counted("/concepts/{number}", 503)
    client = TestClient(create_app(served_index), base_url=BASE)
    explain = f"/explain?query=a&document_id={DOCUMENTS[0].id}"
    for address in ("/search?query=a", "/query?query=a", explain, "/concepts", "/concepts/1"):
        response = client.get(address)
        assert response.status_code == 503
        assert "too many requests wait" in response.json()["detail"]
        assert response.headers["retry-after"] == "1"
    assert counted("/concepts/{number}", 503) == before + 1
    paths = client.get("/openapi.json").json()["paths"]
    unavailable = {path: paths[path]["get"]["responses"].get("503", {}) for path in paths}
    busy = [path for path, answer in unavailable.items() if "Retry-After" in str(answer)]
    assert sorted(busy) == sorted([*MALFORMED, "/activations"])


def test_a_signal_to_a_server_that_is_starting_ends_it(served_words, monkeypatch):
    def warm(_):
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    monkeypatch.setattr(reader, "warm", warm)
    server = uvicorn.Server(
        uvicorn.Config(create_app(served_words), port=0, log_config=None, ws="none")
    )
    with pytest.raises(KeyboardInterrupt):  # uvicorn raises the signal again at its end
        server.run()
    signal.signal(signal.SIGINT, before)


def test_workers_need_their_settings(monkeypatch):
    monkeypatch.delenv("LEXICEPT_SERVER", raising=False)
    with pytest.raises(InputError, match="LEXICEPT_SERVER must hold the arguments of create_app"):
        from_environment()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_command_binds_to_this_machine(served_index, monkeypatch, workers):
    recorded: dict[str, Any] = {}

    def run(application, **settings):
        shared = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        recorded.update(settings, shared=shared is not None and Path(shared).is_dir())
        assert application == "lexicept.server.app:from_environment"
        assert json.loads(os.environ["LEXICEPT_SERVER"]) == {
            "path": str(served_index),
            "host": "127.0.0.1",
            "query_cache_mb": 32,
            "api_key_file": None,
            "document_url": None,
        }

    monkeypatch.setattr("uvicorn.run", run)
    monkeypatch.setattr("lexicept.pipelines.serve.check_free", lambda host, port: None)
    before = dict(os.environ)
    lexicept.serve(served_index, workers=workers)
    assert os.environ == before
    assert (recorded["host"], recorded["port"], recorded["workers"]) == ("127.0.0.1", 8000, workers)
    assert recorded["shared"] is (workers > 1)  # otherwise each worker would show its own numbers


def test_workers_add_up_their_numbers(tmp_path):
    """Each process writes to the shared folder, and any of them shows the sum."""
    program = (
        "from lexicept.server import metrics\n"
        "metrics.REQUESTS.labels('/search', 200).inc()\n"
        "metrics.SECONDS.labels('/search').observe(0.25)\n"
        "print(metrics.text().decode())"
    )
    shared = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for count in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", program], env=shared, capture_output=True, text=True, check=True
        )
        assert f'lexicept_requests_total{{path="/search",status="200"}} {count}.0' in done.stdout
        assert f'lexicept_request_seconds_sum{{path="/search"}} {count * 0.25}' in done.stdout


@pytest.fixture(scope="module")
def openapi(served_index):
    app = create_app(served_index, "0.0.0.0")
    app.router.lifespan_context = lambda _: nullcontext()  # or the first case would end the app
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def test_the_openapi_document_is_complete(openapi):
    assert sorted(openapi.raw_schema["paths"]) == sorted(ADDRESSES)
    for operations in openapi.raw_schema["paths"].values():
        assert operations["get"]["description"]


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        *((address, GenerationMode.POSITIVE) for address in ADDRESSES),
        *((address, GenerationMode.NEGATIVE) for address in MALFORMED),
    ],
)
def test_no_request_is_a_server_error(openapi, address, mode):
    """Whatever schemathesis makes of the document is answered as the document says."""

    @settings(max_examples=6, phases=[Phase.explicit, Phase.generate], derandomize=True)
    @given(case=openapi[address]["GET"].as_strategy(generation_mode=mode))
    def check(case):
        # No schema says which filters fit the fields, or which phrases have a word.
        parameters = {"query", "filter"} & set(case.query or {})
        excluded = [positive_data_acceptance] if parameters else []
        case.call_and_validate(excluded_checks=excluded)

    check()


def test_a_search_s_parameters_are_read_as_fastapi_reads_them(client, served_index):
    app = create_app(served_index)
    app.router.routes = [route for route in app.routes if getattr(route, "path", "") != "/search"]
    app.add_api_route("/search", routes.search)
    usual = TestClient(app, base_url=BASE)
    for parameters in (
        [("query", "bade"), ("query", "kilo")],
        [("query", "bade"), ("boost", "words:2"), ("boost", "concepts:0.5")],
        [("query", "bade"), ("facet", "part"), ("count", "yes"), ("top_k", "2"), ("offset", "1")],
        [("query", "")],
        [("top_k", "x"), ("offset", "-1")],
        [("query", "bade"), ("facet", ""), ("steer", "no")],
        [("query", "bade"), ("filter", "")],
    ):
        ours, theirs = (caller.get("/search", params=parameters) for caller in (client, usual))
        assert (ours.status_code, ours.json()) == (theirs.status_code, theirs.json())


def test_a_query_as_the_request_of_an_engine(client):
    body = get(client, "/query_body", query="kilo", engine="opensearch", top_k=3)
    assert body["size"] == 3
    assert "neural_sparse" in body["query"]["bool"]["must"][0]
