"""The readers: how to write valid files for each, and how to read them to the end."""

import gzip
import json
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
import torch

from lexicept.candidates.lists import Lists
from lexicept.concepts.llm_labels import _ReplyError, read_reply
from lexicept.corpora import Document, read_documents, read_qrels, read_queries
from lexicept.encoding.head_settings import HeadSettings
from lexicept.encoding.words import WordVectorizer
from lexicept.errors import InputError, LexiceptError
from lexicept.evaluation.effectiveness import evaluate
from lexicept.evaluation.runs import read_run
from lexicept.evaluation.sweep import Point, Setting, read_points
from lexicept.exports import Anserini, export_index
from lexicept.fields.filters import parse as parse_filter
from lexicept.index import verification
from lexicept.index.impacts import RRASettings, VocabularySettings
from lexicept.index.reader import IndexReader
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.cached_states import CachedStates
from lexicept.neural.sae.explanations import read_explanations
from lexicept.neural.sae.model import SAE
from lexicept.neural.sae.states import Position
from lexicept.neural.sae_formats.pretrained import find_pretrained_sae
from lexicept.queries.syntax import ParsedQuery
from lexicept.storage.arrays import load_csr, save_array, save_csr
from lexicept.storage.texts import TextStore
from lexicept.storage.workspace import Workspace
from lexicept.training.loop import Checkpoint
from lexicept.training.ranking.config import load_config
from lexicept.training.ranking.metrics import read_metrics
from lexicept.training.sae.settings import SAESettings
from lexicept.training.sae.trainer import SAELoop, initial_sae, resume
from lexicept.weighting import BM25
from support import sae_files, tiny
from support.indexes import build_of, edit_manifest, redescribe
from support.vowels import Vowels, findings


class Target(NamedTuple):
    """A reader and its files."""

    write: Callable[[Path], object]
    """Writes valid files into an empty folder."""
    read: Callable[[Path], None]
    """Reads all that can be read of them, and uses it."""
    settle: Callable[[Path], None] = lambda _: None
    """Makes checksums agree with what was changed, so that readers look further."""
    changed: str = "**/*"
    """Which of the files are mutated."""


TEXTS = ["a cat and an owl", "the dog, a yak; dogs", "", "größe 猫 elk owl"]


def exhaust(items: Iterable[object]) -> None:
    for _ in items:
        pass


# Indexes


def write_index(folder: Path) -> None:
    known = [{"n": i, "tag": ["a", f"b{i}"], "day": f"2020-01-0{i + 1}"} for i in range(len(TEXTS))]
    known[-1] = {"x": 0.5}
    documents = [
        Document(f"d{i}", text, "a title"[: 4 * i], fields)
        for i, (text, fields) in enumerate(zip(TEXTS, known, strict=True))
    ]
    words = WordVectorizer(), VocabularySettings(BM25(), 9, 9)
    vowels = Vowels(), VocabularySettings(BM25(k3=1.0))
    atlas = findings(len(TEXTS))
    build_of(folder / "index", documents, words, vowels, rra=RRASettings(), atlas=atlas)


def use_index(folder: Path) -> None:
    verification.verify(folder / "index")
    index = IndexReader.open(folder / "index")
    exhaust(index.documents())
    for query in ("cats dog", "größe a"):
        for hit in islice(index.search([query], 10)[0], 3):
            index.explain(query, hit.id).to_json()
    given = {"n": {"<": 2}, "tag": ["a", "b0"], "day": {">": "2019"}, "x": {"exists": False}}
    with suppress(InputError):  # a field may be gone
        query = ParsedQuery("cats dog", filter=parse_filter(given))
        exhaust(hit.fields for hit in index.search([query])[0])
    index.masks.counts(list(index.fields), index.matching("cats dog"), 5)
    index.query_terms("owl")
    exhaust(concept.to_json() for concept in index.atlas or ())
    if index.atlas is not None:
        index.atlas.search("cat")
    index.document_vectors()
    index.tf()


def reseal(folder: Path) -> None:
    """Make the manifest's checksum agree, if the rest can be read."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        edit_manifest(folder / "index", lambda _: None)


def write_export(folder: Path) -> None:
    """Leave an export that was killed in the end."""
    write_index(folder)
    index = IndexReader.open(folder / "index")
    killed = patch.object(Workspace, "publish", side_effect=KeyboardInterrupt)
    with killed, suppress(KeyboardInterrupt):
        export_index(index, Anserini(), folder / "out")


def go_on_with_export(folder: Path) -> None:
    try:
        export_index(IndexReader.open(folder / "index"), Anserini(), folder / "out")
    finally:
        shutil.rmtree(folder / "out", ignore_errors=True)


# Files of lines

DOCUMENTS = [
    {"_id": "d1", "title": "Cats", "text": "Cats sleep. größe"},
    {"id": 2, "contents": "Dogs\n bark", "metadata": {"n": [1, 2.5, None]}},
    {"docno": "d3", "body": ""},
]
LIST = {"query_id": "q", "relevant": ["d1"], "candidates": ["d7", "d3"], "scores": [9.1, 2, 1.5]}
NEGATIVES = {
    "qid": 1,
    "pos": [{"pid": 2, "ce-score": 7.5}],
    "neg": {"bm25": [{"pid": 5, "ce-score": 1.5}], "ance": [{"pid": 6, "ce-score": -1}]},
}
LISTS = {
    "ours.jsonl": json.dumps(LIST) + "\n" + json.dumps({**LIST, "query_id": 3, "scores": None}),
    "colbert.jsonl": '[1, [2, 5.5], [3, 4.0]]\n["q", ["d", 1], ["e", 0.5]]\n',
    "hard.jsonl": json.dumps(NEGATIVES) + "\n" + json.dumps({"qid": 2, "pos": [1], "neg": {}}),
    "triples.tsv": "q1\td1\td2\nq1\td1\td3\n",
}
RUN = "q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1e-3 tag\nq2 Q0 d1 1 7 tag\n"
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td9\t2\n"


def lines(values: Iterable[object]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = data.encode()
        path.write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)


def read_each(read: Callable[[Path], object], folder: Path) -> None:
    """Read every file; the first error is the folder's, but other files are read too."""
    failed = None
    for path in sorted(folder.iterdir()):
        try:
            read(path)
        except LexiceptError as error:
            failed = error
    if failed is not None:
        raise failed


def read_beir(folder: Path) -> None:
    exhaust(read_queries(folder / "jsonl", "test"))
    exhaust(read_queries(folder / "tsv", "test"))
    exhaust(read_documents(folder / "jsonl"))
    evaluate(list(read_qrels(folder / "tsv")), {"q1": {"d1": 1.0}})


BEIR = {
    "jsonl/corpus.jsonl": lines(DOCUMENTS),
    "jsonl/queries.jsonl": lines([{"_id": "q1", "text": "cats"}, {"qid": 2, "query": "x"}]),
    "jsonl/qrels/test.tsv": QRELS,
    "tsv/queries.tsv.gz": "qid\ttext\nq1\tcats\nq2\tdogs é\n",
    "tsv/qrels/test.tsv": "q1 0 d1 1\nq2 0 d2 -1\n",
}


EXPLANATIONS = lines(
    {"index": str(i), "description": f"about {i}", "layer": "8-res-jb"} for i in range(4)
)


def write_workspace(folder: Path) -> None:
    with Workspace(folder / "out", "test", {"k": 1, "model": {"layers": [1, 2]}}) as work:
        work.growing("lines").append_lines(["a", "ä"], 2)
        units = work.units("units")
        (units.folder / "file").write_text("content")
        units.finish("a", [units.folder / "file"], next=3)


def read_workspace(folder: Path) -> None:
    with Workspace(folder / "out", "test", {"k": 1, "model": {"layers": [1, 2]}}) as work:
        work.growing("lines").lines()
        work.units("units").facts("a")


def read_a_reply(path: Path) -> None:
    with suppress(_ReplyError):
        read_reply(path.read_bytes())


VALUES = {"nDCG@10": 0.5, "RR@10": 0.25, "qd_flops": 2.0, "e2": 0.1}
POINT = Point(Setting(4, None, 1.5), VALUES)
CONFIG = """data: {corpus: beir, queries: beir, negatives: 2}
model: {start: model, trained: all}
loss: {words: 0.5, in_batch: 0.5, scale: 0.3}
document_regularizer: {weight: 0.01, schedule: constant}
optimizer: {steps: 5, batch_size: 3, learning_rate: 1.0e-3}
validation: {queries: beir, every: 2}
"""

# Arrays and texts


def write_arrays(folder: Path) -> None:
    TextStore.write(folder / "t", TEXTS)
    save_csr(folder / "m", sp.csr_array([[1.0, 0, 2], [0, 0, 0], [0, 3, 0]]))


def read_arrays(folder: Path) -> None:
    store = TextStore(folder / "t")
    exhaust(store)
    exhaust(store[-1:])
    matrix = load_csr(folder / "m", 3)
    (matrix @ np.ones(3, np.float32)).sum()
    matrix[1:].toarray()


def write_states(folder: Path) -> None:
    save_array(folder / "000000.npy", np.ones((7, 4), np.float16))
    save_array(folder / "000000.starts.npy", np.array([0, 3, 3, 7]))
    save_array(folder / "000000.windows.npy", np.array([[1, 2, 3], [3, 4, 7]]))


def read_states(folder: Path) -> None:
    CachedStates(folder, 3).features([0, 1, 2])


# Models


def read_sae(folder: Path) -> None:
    sae = find_pretrained_sae(folder, pickles=True).load()
    sae.encode(torch.zeros(2, sae.d_in))


def write_own_sae(folder: Path) -> None:
    for name, k in (("top", 3), ("jump", None)):
        sae = SAE(6, 10, k)
        sae.origin = {"hook": "blocks.3.hook_resid_post", "layer": 4}
        sae.save(folder / name)


def read_own_sae(folder: Path) -> None:
    for name in ("top", "jump"):
        read_sae(folder / name)
        SAE.load(folder / name).encode(torch.zeros(2, 6))


def write_heads(folder: Path) -> None:
    torch.manual_seed(0)
    inner = VocabularyHead(torch.randn(5, 6), torch.zeros(5), list("abcde"))
    SAEHead(SAE(6, 10, 3), HeadSettings(query_k=2, document_max_active_dims=4), inner).save(
        str(folder / "sae")
    )
    (folder / "words").mkdir()
    inner.save(str(folder / "words"))


def read_heads(folder: Path) -> None:
    for read, name in ((SAEHead.read, "sae"), (VocabularyHead.read, "words")):
        head = read(folder / name)
        head.encode(torch.zeros(2, head.d_in))


def write_encoder(folder: Path) -> None:
    encoder = Encoder.of(tiny.tiny_backbone(folder / "bert"), SAEHead(SAE(32, 40, 3)))
    encoder.save(str(folder / "model"), create_model_card=False)


def read_encoder(folder: Path) -> None:
    assert Encoder.load(folder / "model").weighting.settings()


TRAINING = SAESettings(num_latents=6, k=2, tokens=100, batch_size=10)


def write_checkpoint(folder: Path) -> None:
    loop = SAELoop(initial_sae(torch.randn(20, 4), TRAINING), TRAINING)
    loop.save(folder / "checkpoint.pt", Position())


def read_checkpoint(folder: Path) -> None:
    resume(Checkpoint(folder / "checkpoint.pt", TRAINING), TRAINING)


KINDS = ("AutoEncoderTopK", "GatedAutoEncoder")
SAES: dict[str, Callable[[Path], object]] = {
    "llama-scope": sae_files.llama_scope,
    "gemma-scope": sae_files.gemma_scope,
    "gemma-scope-2": sae_files.gemma_scope_2,
    "saelens-5": sae_files.old_saelens,
    "sparsify": sae_files.sparsify,
    "saelens": partial(sae_files.saelens, architecture="gated"),
    **{source: partial(sae_files.dictionary_learning, kind=source) for source in KINDS},
}


def files(**named: str) -> Callable[[Path], None]:
    return partial(write_files, files={n.replace("__", "."): text for n, text in named.items()})


W, R = 'xmlns:w="urn:w"', 'xmlns:r="urn:r"'
TAR = '<Relationships xmlns="urn:p"><Relationship Id="r1" Target="{}"/></Relationships>'
ZIPPED = {
    "docx": {
        "word/document.xml": f"<w:document {W}><w:body><w:p><w:pPr><w:pStyle w:val='H'/></w:pPr>"
        "<w:r><w:t>Owls</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>hoot</w:t></w:r></w:p>"
        "</w:tc></w:tr></w:tbl></w:body></w:document>",
        "word/styles.xml": f"<w:styles {W}><w:style w:styleId='H'><w:name w:val='heading 1'/>"
        "</w:style></w:styles>",
        "docProps/core.xml": "<c><title>Birds</title><creator>Ann</creator></c>",
    },
    "pptx": {
        "ppt/presentation.xml": f"<p {R}><sldId id='256' r:id='r1'/></p>",
        "ppt/_rels/presentation.xml.rels": TAR.format("slide1.xml"),
        "ppt/slide1.xml": "<s><sp><nvSpPr><nvPr><ph type='title'/></nvPr></nvSpPr><txBody><p>"
        "<t>Owls</t></p></txBody></sp></s>",
    },
    "xlsx": {
        "xl/workbook.xml": f"<b {R}><sheet name='Birds' r:id='r1'/></b>",
        "xl/_rels/workbook.xml.rels": TAR.format("sheet1.xml"),
        "xl/sheet1.xml": "<w><row><c><v>45352.5</v></c><c t='inlineStr'><is><t>owl</t></is></c>"
        "<c t='s'><v>0</v></c><c s='0'><v>1e300</v></c></row></w>",
    },
    "ods": {
        "content.xml": "<d xmlns:t='urn:t'><body><spreadsheet><table t:name='Birds'><table-row>"
        "<table-cell t:number-columns-repeated='2'><p>owl</p></table-cell></table-row></table>"
        "</spreadsheet></body></d>",
        "meta.xml": "<m><title>Birds</title></m>",
    },
    "epub": {
        "META-INF/container.xml": "<c><rootfile full-path='b.opf'/></c>",
        "b.opf": "<p><item id='a' href='a.xhtml' media-type='application/xhtml+xml'/>"
        "<itemref idref='a'/></p>",
        "a.xhtml": "<html><body><h1>Owls</h1><p>They hoot.</p></body></html>",
    },
}
"""Members of zipped formats."""

MAIL = """From: Ann <ann@a.org>
Subject: =?utf-8?q?V=C3=B6gel?=
Date: Fri, 1 Mar 2024 10:00:00 +0100
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: text/plain; charset=utf-8; format=flowed
Content-Transfer-Encoding: quoted-printable

Owls=20
hoot
--b
Content-Type: text/html; name=a.html
Content-Disposition: attachment; filename=a.html
Content-Transfer-Encoding: base64

PHA+Y2F0cw==
--b--
"""


def read_zipped(extension: str, folder: Path) -> None:
    """Zip the members, which may be damaged, and read the archive."""
    path = folder / f"a.{extension}"
    with zipfile.ZipFile(path, "w") as archive:
        for member in sorted((folder / "members").rglob("*")):
            if member.is_file():
                archive.write(member, member.relative_to(folder / "members"))
    exhaust(read_documents(path))


def zipped_target(extension: str) -> Target:
    members = {f"members/{name}": text for name, text in ZIPPED[extension].items()}
    read = partial(read_zipped, extension)
    return Target(partial(write_files, files=members), read, changed="members/**/*")


def _targets() -> Iterator[tuple[str, Target]]:
    yield "manifest", Target(write_index, use_index, reseal, "index/manifest.json")
    yield (
        "index",
        Target(write_index, use_index, lambda f: redescribe(f / "index"), "index/g*/**/*"),
    )
    yield "export", Target(write_export, go_on_with_export, changed="out.partial/*.json*")
    yield "workspace", Target(write_workspace, read_workspace, changed="out.partial/**/*")
    yield "arrays", Target(write_arrays, read_arrays)
    yield "states", Target(write_states, read_states)
    documents = partial(read_each, lambda path: exhaust(read_documents(path)))
    yield "json-lines", Target(files(a__jsonl=lines(DOCUMENTS)), documents)
    yield "json-lines-gz", Target(files(a__jsonl__gz=lines(DOCUMENTS)), documents)
    yield "tsv", Target(files(a__tsv="id\ttitle\ttext\n1\tA\tcats é\n2\t\tx\n"), documents)
    yield "json", Target(files(a__json=json.dumps(DOCUMENTS)), documents)
    yield "csv", Target(files(a__csv='id,title,text\n1,A,"cats, é"\n2,,x\n'), documents)
    yield from ((extension, zipped_target(extension)) for extension in ZIPPED)
    yield "mail", Target(files(a__eml=MAIL), documents)
    yield "mailbox", Target(files(a__mbox=f"From ann\n{MAIL}\n\nFrom bob\n{MAIL}"), documents)
    yield "tex", Target(files(a__tex='\\section{Owls} % x\nThey \\emph{h\\"oot}.\n'), documents)
    yield ("adoc", Target(files(a__adoc="= Owls\nAnn\n\n* https://a.org[b] {author}\n"), documents))
    yield "org", Target(files(a__org="#+title: Owls\n* TODO a :b:\n[[x][y]] /z/ |a|\n"), documents)
    yield "mdx", Target(files(a__mdx="import x\n\n# Owls\n\n<A b={c}>hoot</A> `d`\n"), documents)
    yield "srt", Target(files(a__srt="1\n00:00:01,0 --> 00:00:02,0\n<i>hoot</i>\n"), documents)
    yield (
        "text-folder",
        Target(
            files(a__md="# Cats\n\nsleep\n```\n# x\n```\n", b__txt="Dogs é"),
            lambda folder: exhaust(read_documents(folder)),
        ),
    )
    yield "beir", Target(partial(write_files, files=BEIR), read_beir)
    yield "run", Target(files(a__run=RUN), partial(read_each, read_run))
    yield (
        "lists",
        Target(
            partial(write_files, files=LISTS),
            partial(read_each, lambda path: exhaust(Lists.open(path))),
        ),
    )
    yield (
        "explanations",
        Target(
            files(a__jsonl=EXPLANATIONS, b__jsonl__gz=EXPLANATIONS),
            lambda folder: exhaust(read_explanations(folder, SAE(6, 10, 3))),
        ),
    )
    reply = json.dumps({"choices": [{"message": {"content": "<think>x</think>\nLabel: cats"}}]})
    yield "reply", Target(files(reply__json=reply), partial(read_each, read_a_reply))
    yield (
        "points",
        Target(files(points__jsonl=lines([POINT.to_json()] * 2)), partial(read_each, read_points)),
    )
    yield (
        "metrics",
        Target(
            files(metrics__jsonl=lines([{"step": 1, "loss": 0.5}] * 2)),
            partial(read_each, read_metrics),
        ),
    )
    yield "config", Target(files(config__yaml=CONFIG), partial(read_each, load_config))
    yield "heads", Target(write_heads, read_heads)
    yield "encoder", Target(write_encoder, read_encoder, changed="model/**/*")
    yield "checkpoint", Target(write_checkpoint, read_checkpoint)
    yield "sae-lexicept", Target(write_own_sae, read_own_sae)
    for name, make in SAES.items():
        yield f"sae-{name}", Target(make, read_sae)


TARGETS = dict(_targets())
