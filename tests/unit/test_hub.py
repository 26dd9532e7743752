"""Models pulled through the hub's own client, from a small hub on this machine."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import yaml

from lexicept.encoding.hub import model_folder
from lexicept.encoding.sources import Reference
from lexicept.errors import InputError
from lexicept.index.reader import IndexReader
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.encoders.model_card import make_card
from lexicept.neural.heads.language import language_head
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.model import SAE
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from support.tiny import tiny_backbone

TEXTS = ["bade kilo", "muba"]


class Hub(ThreadingHTTPServer):
    """As much of the hub as models need: listed and downloaded."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.models: dict[str, dict[str, bytes]] = {}
        self.downloaded: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sha(self, name: str) -> str:
        return hashlib.sha1(repr(sorted(self.models[name].items())).encode()).hexdigest()


class _Requests(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        known = re.match(r"/(?:api/models/)?([^/]+/[^/]+)(.*)", path)
        if known is None or known[1] not in self.server.models:
            self.answer(b"", 404, X_Error_Code="RepoNotFound")
            return
        name, rest = known[1], known[2]
        files, sha = self.server.models[name], self.server.sha(name)
        if rest.startswith("/revision/") and rest != "/revision/main":
            self.answer(b"", 404, X_Error_Code="RevisionNotFound")
        elif path.startswith("/api/") and rest.startswith("/tree/"):
            records = [
                {"type": "file", "path": file, "size": len(data), "oid": "0" * 40}
                for file, data in files.items()
            ]
            self.answer(records)
        elif path.startswith("/api/"):
            siblings = [{"rfilename": file} for file in files]
            self.answer({"id": name, "sha": sha, "private": False, "siblings": siblings})
        else:
            file = rest.removeprefix(f"/resolve/{sha}/")
            if self.command == "GET":
                self.server.downloaded.append(file)
            etag = hashlib.sha1(files[file]).hexdigest()
            self.answer(files[file], X_Repo_Commit=sha, ETag=f'"{etag}"')

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def hub(monkeypatch, tmp_path):
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    known = huggingface_hub.constants
    template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(known, "ENDPOINT", server.address)
    monkeypatch.setattr(known, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(known, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(known, "HF_HUB_OFFLINE", False)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A saved encoder with names of its dimensions, and things not to be published with it."""
    folder = tmp_path_factory.mktemp("model")
    encoder = Encoder.of(tiny_backbone(folder / "bert"), language_head(str(folder / "bert")))
    encoder.save(str(folder / "saved"), create_model_card=False)
    for name in ("pytorch_model.bin", "code.py", "optimizer.pt", ".env"):
        (folder / "saved" / name).write_bytes(b"not to be seen")
    return folder / "saved"


def put(hub: Hub, folder: Path, name: str) -> None:
    """Have a model's folder on the hub, as ``hf upload`` leaves it."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    hub.models[name] = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_model_is_pulled(hub, model, monkeypatch):
    put(hub, model, "team/tiny")
    files = hub.models["team/tiny"]
    # What others may have put there is not downloaded.
    files |= {"pytorch_model.bin": b"pickle", "evil.py": b"code", "1/model.pkl": b"pickle"}
    expected = Encoder.load(model).encode_activations(TEXTS)
    assert (Encoder.load("team/tiny").encode_activations(TEXTS) != expected).nnz == 0
    refused = {"pytorch_model.bin", "evil.py", "1/model.pkl", "code.py", "optimizer.pt", ".env"}
    assert set(hub.downloaded) == set(files) - refused
    # It is in the cache now.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert (Encoder.load("team/tiny").encode_activations(TEXTS) != expected).nnz == 0
    assert list(ConceptVectorizer.load(Path("team/tiny")).terms)[5] == "baba"
    Encoder.load("team/tiny", revision=hub.sha("team/tiny"))
    with pytest.raises(InputError, match=r"team/other: no such folder, .* not in the cache"):
        Encoder.load("team/other")


def test_an_index_of_a_pulled_model(hub, model, run, tmp_path, monkeypatch):
    put(hub, model, "team/tiny")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text(TEXTS[0])
    out = tmp_path / "index"
    encoder = ("--vocabulary", "concepts", "--model", "team/tiny", "--out", out)
    assert run("build", corpus, *encoder).code == 0
    (hit,) = IndexReader.open(out).search(["bade"])[0]
    # It refers to the hub's weights, by the commit and their checksums.
    folder = next(out.glob("generation-*/concepts/model"))
    reference = json.loads((folder / "backbone.json").read_text())
    assert (reference["name"], reference["revision"]) == ("team/tiny", hub.sha("team/tiny"))
    weights = hub.models["team/tiny"]["model.safetensors"]
    described = {"size": len(weights), "sha256": hashlib.sha256(weights).hexdigest()}
    assert reference["files"] == {"model.safetensors": described}
    assert not (folder / "model.safetensors").exists()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert IndexReader.open(out).search(["bade"])[0][0].score == hit.score
    copied = tmp_path / "copied"
    encoder = (*encoder[:-1], copied, "--embed-model")
    assert run("build", corpus, *encoder).code == 0
    assert not [*copied.rglob("backbone.json")]
    assert IndexReader.open(copied).search(["bade"])[0][0].score == hit.score


def test_weights_that_have_changed_since(hub, model, tmp_path):
    put(hub, model, "team/tiny")
    folder = model_folder("team/tiny")
    reference = Reference.to("team/tiny")
    assert reference is not None
    reference.write(tmp_path)
    assert Reference.read(tmp_path) == reference
    assert reference.find() == folder
    altered = {"model.safetensors": {**reference.files["model.safetensors"], "sha256": "0" * 64}}
    other = Reference(reference.name, reference.revision, altered)
    with pytest.raises(InputError, match=r"does not match the checksum of the backbone team/tiny"):
        other.find()
    with pytest.raises(InputError, match="its backbone can't be loaded: team/none"):
        Reference("team/none", None, reference.files).find()


def test_refused_models(hub, model):
    put(hub, model, "team/tiny")
    with pytest.raises(InputError, match=r"team/none: no such folder, .* none of that name"):
        Encoder.load("team/none")
    with pytest.raises(InputError, match="no such revision"):
        Encoder.load("team/tiny", revision="old")
    with pytest.raises(InputError, match="only the hub's models have revisions"):
        Encoder.load(model, revision="main")


def test_cards(model):
    encoder = Encoder.load(model)
    linked = yaml.safe_load(make_card(encoder, "t", "owner/base").split("---\n")[1])
    assert linked["base_model"] == "owner/base"
    assert "base_model" not in make_card(encoder, "t", str(model))
    latents = Encoder.of(encoder[0], SAEHead(SAE(32, 16, 4)))
    assert "a SAEHead of\n16 dimensions with max pooling" in make_card(latents, "t", "bert")
