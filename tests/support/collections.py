"""Small BEIR folders."""

import json
from collections.abc import Mapping
from pathlib import Path


def write_beir(
    folder: Path, documents: Mapping[str, str], queries: Mapping[str, str], qrels: Mapping[str, str]
) -> Path:
    """Write documents, queries and qrels (split → the text of its file) as a BEIR folder."""
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = (json.dumps({"_id": i, "title": "", "text": t}) + "\n" for i, t in texts.items())
        (folder / f"{name}.jsonl").write_text("".join(lines))
    for split, data in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text(data)
    return folder


DOCUMENTS = {
    "d1": "the cat sleeps all day long",
    "d2": "a dog barks at the cat",
    "d3": "some banks lend a lot of money",
    "d4": "rivers flood their banks in spring rain",
}


def write_judged(folder: Path) -> Path:
    """Write ``DOCUMENTS`` and three queries judged for training, one as not relevant."""
    queries = {"q1": "sleeping cats", "q2": "bank money", "q3": "river", "q4": "dog"}
    header = "query-id\tcorpus-id\tscore\n"
    train = f"{header}q1\td1\t1\nq2\td3\t2\nq3\td3\t0\n"
    return write_beir(folder, DOCUMENTS, queries, {"train": train, "dev": "q4 0 d2 1\n"})
