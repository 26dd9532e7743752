"""Arguments and options that several commands share, and how results are printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.errors import InputError, ParameterError
from lexicept.errors import require as require

if TYPE_CHECKING:
    from lexicept.index.reader import IndexReader
    from lexicept.pipelines.index import Index


class DtypeChoice(StrEnum):
    """Types of a model's weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class VocabularyChoice(StrEnum):
    """Vocabularies to build."""

    words = "words"
    concepts = "concepts"
    all = "all"


class SearchVocabularyChoice(StrEnum):
    """Vocabularies to search."""

    words = "words"
    concepts = "concepts"
    texts = "texts"
    all = "all"

    @property
    def names(self) -> list[str]:
        return ["words", "concepts"] if self is SearchVocabularyChoice.all else [self.value]


class PrecisionChoice(StrEnum):
    """Number format of the backbone."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class QueryEncoder(StrEnum):
    """Encoder of the concepts of queries."""

    model = "model"
    lookup = "lookup"


CorpusArgument = Annotated[
    str,
    typer.Argument(
        help="Documents: a folder of files (text, Markdown, HTML, PDF, CSV, JSON, Parquet), one "
        "such file, a BEIR folder, an ir_datasets name, or python-docs (docstrings of the standard "
        "library)."
    ),
]
DatasetArgument = Annotated[
    str, typer.Argument(help="Judged queries: a BEIR folder or an ir_datasets name.")
]
IndexArgument = Annotated[Path, typer.Argument(help="Folder of the index.")]
SkipErrorsOption = Annotated[
    bool,
    typer.Option("--skip-errors", help="Skip documents that can't be read, and list them."),
]
IgnoreIdenticalIdsOption = Annotated[
    bool,
    typer.Option(
        "--ignore-identical-ids",
        help="Leave out a hit whose id is its query's, as BEIR does: for collections whose queries "
        "are documents, such as ArguAna and Quora.",
    ),
]
OverwriteOption = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace an existing --out, once the new one is complete."),
]
NewIndexOption = Annotated[Path, typer.Option(help="Folder of the new index; must not exist.")]
SearchEngineOption = Annotated[
    str,
    typer.Option(
        "--engine", help="Engine to search with: exact, or one built by `lexicept index engine`."
    ),
]
SearchVocabularyOption = Annotated[
    SearchVocabularyChoice | None,
    typer.Option(help="Vocabulary to search. Default: all that the index has."),
]
QueryEncoderOption = Annotated[
    QueryEncoder,
    typer.Option(
        help="model: run the concept model on queries. lookup: look their tokens up in a table of "
        "the index, without torch; it is faster and finds less."
    ),
]
AttentionOption = Annotated[
    bool | None,
    typer.Option(
        "--bidirectional/--causal",
        help="Attention of a decoder: to all tokens, or to earlier ones only. Default: as a "
        "pretrained SAE was trained, causal where it does not say; bidirectional for one that is "
        "trained here.",
        show_default=False,
    ),
]
WidthOption = Annotated[
    int | None, typer.Option(min=1, help="Choose the pretrained SAE with this many latents.")
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Use a Ray cluster: HOST:PORT of its head node, or local to start one here. "
        "Ray listens on all network interfaces.",
    ),
]
RayWorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of Ray processes. Default: one per processor, or per GPU to encode. "
        "Requires --ray.",
    ),
]
RestartOption = Annotated[
    bool,
    typer.Option("--restart", help="Discard unfinished work and start over."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


BoostOption = Annotated[
    str | None,
    typer.Option(
        "--boost", help="Factors on the weights of whole vocabularies: words=1,concepts=.5."
    ),
]


def read_boosts(given: str | None) -> dict[str, float] | None:
    """Return the factor of each vocabulary in a text such as ``words=1,concepts=.5``.

    Raises:
        InputError: another text, or a vocabulary twice.
    """
    if given is None:
        return None
    boosts: dict[str, float] = {}
    for part in given.split(","):
        name, sign, factor = (one.strip() for one in part.partition("="))
        try:
            if not sign or name in boosts:
                raise ValueError
            boosts[name] = float(factor)
        except ValueError:
            problem = "factors such as words=1,concepts=.5 are needed"
            raise InputError(f"--boost {given!r:.80}: {problem}") from None
    return boosts


@contextmanager
def working(activity: str) -> Iterator[None]:
    """Show a spinner in a terminal while the block runs."""
    from rich.console import Console

    with Console(stderr=True).status(activity):
        yield


def open_to_search(
    path: Path,
    choice: SearchVocabularyChoice | None = None,
    *,
    engine: str = "exact",
    query_encoder: QueryEncoder = QueryEncoder.model,
    one_query: bool,
) -> tuple[Index, str | None]:
    """Open an index, and load the model that a search needs; a spinner names the step.

    Args:
        one_query: whether it is for one query without explanation, which takes less than the model.

    Returns:
        The index, and the vocabulary to search alone, or None for all of them.
    """
    from lexicept.pipelines.index import open as open_index

    with working("opening index"):
        index = open_index(path, engine=engine)
        name = single_vocabulary(index.reader, choice)
    needs_model = name != "words" and query_encoder == QueryEncoder.model
    if needs_model and "concepts" in index.vocabularies:
        with working("loading model"):
            index.reader.vectorizers.prepare("concepts", one_query=one_query)
    return index, name


@contextmanager
def option_names() -> Iterator[None]:
    """Name options, as a person typed them, where an error of the block names parameters."""
    try:
        yield
    except ParameterError as error:
        options = (f"--{name.replace('_', '-')}" for name in error.names)
        raise InputError(error.text.format(*options)) from None


def single_vocabulary(index: IndexReader, choice: SearchVocabularyChoice | None) -> str | None:
    """Return the vocabulary to search alone, or None for all of them.

    Raises:
        InputError: the index does not have it.
    """
    if choice is None:
        return None
    present = [vocabulary.name for vocabulary in index.vocabularies]
    for name in choice.names:
        if name not in present:
            raise InputError(f"{index.path} has no {name}, only {', '.join(present)}")
    return choice.names[0] if len(choice.names) == 1 else None


def ignored_ids(ignored: bool) -> str:
    """Return what the title of results says about ``--ignore-identical-ids``."""
    return ", without hits of the query's own id" if ignored else ""


def require_concepts() -> None:
    """Raise InputError if the packages that concepts need are missing."""
    require("concepts", "sentence_transformers", hint=", or build with --vocabulary words")


def print_report(values: dict[str, Any], as_json: bool) -> None:
    """Print a few values, as a table or as JSON."""
    if as_json:
        print_json(values)
    else:
        print_table("", [(key, str(value)) for key, value in values.items()])


def print_table(title: str, rows: list[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    from rich.console import Console

    from lexicept.cli.display import key_values

    Console().print(key_values(title, rows))


def print_json(content: dict[str, Any], indent: int | None = 1) -> None:
    """Print JSON that a terminal can show, in one line where ``indent`` is None."""
    text = json.dumps(content, ensure_ascii=False, indent=indent)
    # JSON does not escape C1 controls, which a terminal obeys, nor marks that reorder text.
    print(
        re.sub(
            "[\x7f-\x9f\u202a-\u202e\u2066-\u2069]",
            lambda control: f"\\u{ord(control[0]):04x}",
            text,
        )
    )
