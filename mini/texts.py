"""``python -m mini.texts DATA DOCS OUT``: the general corpus that lexicept-mini's concepts are of.

DATA holds BEIR folders. Each folder in DOCS is a documentation, but for ``wordnet``, the database
of WordNet (``data.noun`` and the like), and ``man``, the sources of Linux's manual pages.
Docstrings come from the Python that runs this. OUT becomes a file of JSON Lines.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from lexicept.corpora import read_documents, read_queries
from lexicept.encoding.sources import MINI_FOLDER
from lexicept.encoding.windows import read_tokenizer
from lexicept.storage.files import replacing_text

TOKENS = {
    "squad_train": 900_000,
    "squad_train-questions": 150_000,
    "medquad": 800_000,
    "medquad-questions": 50_000,
    "vaswani_npl": 500_000,
    "cacm": 300_000,
    "wordnet": 250_000,
    "docstrings": 350_000,
}
"""Most tokens of a source, or about so many."""

DOCUMENTATION_TOKENS = 250_000
"""Most tokens of each documentation."""

SHORTEST, LONGEST = 20, 4000
"""Characters of a text: shorter ones are left out, longer ones are cut."""

MODULES = 5000
"""Python files that docstrings are taken from."""

MANUAL_CHARACTERS = 1200
"""Characters of a part of a manual page."""

SEED = 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mini.texts", description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("docs", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    rng = random.Random(SEED)
    lines = []
    for name, texts in sources(arguments.data, arguments.docs):
        drawn, tokens = draw(texts, TOKENS.get(name, DOCUMENTATION_TOKENS), rng)
        lines += [json.dumps({"source": name, "text": text}) for text in drawn]
        print(f"{name}: {tokens:,} tokens in {len(drawn):,} texts", flush=True)
    rng.shuffle(lines)
    with replacing_text(arguments.out) as out:
        out.writelines(f"{line}\n" for line in lines)


def read(path: Path) -> list[str]:
    """Read the corpus that ``main`` writes."""
    return [document.text for document in read_documents(path)]


def draw(texts: Iterator[str], most: int, rng: random.Random) -> tuple[list[str], int]:
    """Draw distinct texts at random, up to about ``most`` tokens; return their tokens too."""
    plain = {" ".join(text.split())[:LONGEST] for text in texts}
    shuffled = sorted(text for text in plain if len(text) >= SHORTEST)
    rng.shuffle(shuffled)
    tokenizer = read_tokenizer(MINI_FOLDER / "tokenizer.json")
    drawn, tokens = [], 0
    for text in shuffled:
        if tokens >= most:
            break
        drawn.append(text)
        tokens += len(tokenizer.encode(text, add_special_tokens=False).ids)
    return drawn, tokens


def sources(data: Path, docs: Path) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield the name and the texts of every source."""
    for name in ("squad_train", "medquad", "vaswani_npl", "cacm"):
        yield name, (document.content for document in read_documents(data / name))
    # Only questions of splits for training: the queries of test collections are not read.
    for name in ("squad_train", "medquad"):
        yield f"{name}-questions", (query.text for query in read_queries(data / name, "train"))
    special = {"wordnet": glosses, "man": manual_pages}
    for folder in sorted(path for path in docs.iterdir() if path.is_dir()):
        yield folder.name, special.get(folder.name, passages)(folder)
    yield "docstrings", docstrings()


def passages(folder: Path) -> Iterator[str]:
    """Yield the passages of a documentation, each after the titles above it."""
    for document in read_documents(folder):
        for passage in document.passages:
            yield f"{document.title} {passage.title} {passage.text}"
        if not document.passages:
            yield document.content


def glosses(folder: Path) -> Iterator[str]:
    """Yield the first word of each of WordNet's synsets with its gloss."""
    for path in sorted(folder.glob("data.*")):
        for line in path.read_text("utf-8").splitlines():
            fields, separator, gloss = line.partition("|")
            if separator and not line.startswith(" "):  # the licence is indented
                yield f"{fields.split()[4].replace('_', ' ')}: {gloss}"


def manual_pages(folder: Path) -> Iterator[str]:
    """Yield parts of manual pages, without most of roff's requests and escapes."""
    for path in sorted(folder.rglob("*.gz")):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            text = re.sub(r"^\.\\\".*$|^\.\w+\b ?", "", file.read(), flags=re.M)
        text = re.sub(r"\\f.|\\&|\\\(..", "", text).replace("\\-", "-").replace("\\", "")
        for start in range(0, len(text), MANUAL_CHARACTERS):
            yield text[start : start + MANUAL_CHARACTERS]


def docstrings() -> Iterator[str]:
    """Yield docstrings of Python's library and of installed packages, each after its name."""
    folders = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")}
    paths = sorted({path for folder in folders for path in folder.rglob("*.py")})
    for path in paths[:: max(1, len(paths) // MODULES)]:
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError):  # templates, and tests of parsers
            continue
        for node in ast.walk(tree):
            documented = isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
            if documented and (text := ast.get_docstring(node)):
                yield f"{getattr(node, 'name', '')} {text}"


if __name__ == "__main__":
    main()
