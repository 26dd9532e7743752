"""A new user's first hour: a folder of PDFs, notes, a table and a text, from the command line."""

from fastapi.testclient import TestClient

from lexicept.server.app import create_app
from support.files import write_files


def test_build_search_sync_filter_and_serve(tmp_path, run):
    folder, path = write_files(tmp_path / "mine"), tmp_path / "my.index"
    built = run("build", folder, "--out", path, "--vocabulary", "words", "--json").json
    assert (built["documents"], built["passages"]) == (15, 16)
    assert built["fields"] == {
        **{"year": "number", "tags": "list of keywords"},
        **{"name": "keyword", "price": "number"},
    }
    hits = run("search", path, "eagles by day", "--json").json["results"]
    assert [(hit["id"], hit["passage"]) for hit in hits] == [("birds.pdf", "birds.pdf#page=2")]
    assert "page 2" in run("search", path, "eagles by day", "--explain").out
    assert "Eagles" in run("explain", path, "eagles", "birds.pdf").out
    (folder / "notes" / "0.md").unlink()
    (folder / "notes" / "1.md").write_text("---\ntags: [hen]\nyear: 2024\n---\n# Hens\n\nA hen.\n")
    changed = run("sync", folder, path, "--json").json
    assert [changed[name] for name in ("added", "replaced", "deleted")] == [0, 1, 1]
    hens = run("search", path, "hen", "--filter", "tags in ['hen']", "--json").json["results"]
    assert [hit["title"] for hit in hens] == ["Hens"]
    cheap = run("search", path, "price", "--filter", "price < 5", "--json").json["results"]
    assert [hit["id"] for hit in cheap] == ["stock.csv#2"]
    with TestClient(create_app(path), base_url="http://127.0.0.1") as client:
        (top,) = client.get("/search", params={"query": "owls"}).json()["results"]
        assert top["title"] == "Birds › page 1"
        whole = client.get("/document?document_id=birds.pdf").json()
        assert [passage["anchor"] for passage in whole["passages"]] == ["page=1", "page=2"]
    assert run("index", "verify", path).code == 0
