"""Commands on an index: build, search, explain, evaluate, update, delete, rra, info, verify."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import (
    CorpusArgument,
    IndexArgument,
    JsonOption,
    print_json,
    print_report,
    print_table,
    require_concepts,
)
from lexicept.errors import InputError

if TYPE_CHECKING:
    from lexicept.concepts import ConceptVectorizer
    from lexicept.index import Index
    from lexicept.indexing import IndexBuilder
    from lexicept.progress import Progress
    from lexicept.weighting import Weighting

app = typer.Typer()


class VocabularyChoice(StrEnum):
    """What to build or search."""

    words = "words"
    concepts = "concepts"
    both = "both"

    @property
    def names(self) -> list[str]:
        return ["words", "concepts"] if self is VocabularyChoice.both else [self.value]


class WeightingChoice(StrEnum):
    """How activations become weights."""

    bm25 = "bm25"
    splade = "splade"


class ArchitectureChoice(StrEnum):
    """Sparse autoencoders that concepts are learned with."""

    topk = "topk"
    batch_topk = "batch_topk"
    jumprelu = "jumprelu"
    relu = "relu"
    gated = "gated"
    hierarchical = "hierarchical"
    matryoshka = "matryoshka"


OutOption = Annotated[Path, typer.Option(help="Where the index will be; must not exist.")]
SearchVocabularyOption = Annotated[
    VocabularyChoice | None, typer.Option(help="Default: all that the index has.")
]

SearchEngineOption = Annotated[
    str, typer.Option("--engine", help="exact, or one that `lexicept engine` built.")
]


@app.command()
def build(
    corpus: CorpusArgument,
    out: OutOption,
    vocabulary: Annotated[
        VocabularyChoice, typer.Option(help="Words need no model; concepts need torch.")
    ] = VocabularyChoice.both,
    language: Annotated[str, typer.Option(help="Of the words: stop words and stemming.")] = "en",
    model: Annotated[
        Path | None,
        typer.Option(help="A saved concept model; without one it is trained on the corpus."),
    ] = None,
    sae: Annotated[
        str | None,
        typer.Option(help="A pretrained SAE of the backbone: a folder or a hub's name."),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(min=1, help="Of several pretrained SAEs, that with so many latents."),
    ] = None,
    explanations: Annotated[
        Path | None,
        typer.Option(help="Names of its concepts: Neuronpedia's export, a .jsonl or a folder."),
    ] = None,
    backbone: Annotated[
        str, typer.Option(help="Hugging Face model under the concepts.")
    ] = "sentence-transformers/all-MiniLM-L6-v2",
    layer: Annotated[
        int | None,
        typer.Option(
            help="Blocks of the backbone to run; all by default, or those before a pretrained SAE "
            "(one more than the number that releases give the layer)."
        ),
    ] = None,
    num_latents: Annotated[int, typer.Option(help="Concepts to learn.")] = 8192,
    k: Annotated[int, typer.Option(help="Active concepts per token.")] = 8,
    architecture: Annotated[
        ArchitectureChoice, typer.Option(help="Of the sparse autoencoder that learns them.")
    ] = ArchitectureChoice.topk,
    train_tokens: Annotated[
        int, typer.Option(help="Tokens the concepts are learned from.")
    ] = 1_000_000,
    weighting: Annotated[
        WeightingChoice | None,
        typer.Option(help="Of the concepts; by default what their model was trained for."),
    ] = None,
    query_max_active_dims: Annotated[
        int | None, typer.Option(min=1, help="Concepts left in a query; all by default.")
    ] = None,
    document_max_active_dims: Annotated[
        int | None, typer.Option(min=1, help="Concepts left in a document; all by default.")
    ] = None,
    seed: int = 0,
    as_json: JsonOption = False,
) -> None:
    """Index a corpus by words, by concepts, or by both.

    Concepts are learned from the corpus itself unless a model or a pretrained SAE is given. A build
    that was killed goes on where it stopped when the same command is run again.
    """
    from contextlib import closing

    from lexicept.corpora import read_documents
    from lexicept.derive import VocabularySettings
    from lexicept.display import ProgressBars
    from lexicept.indexing import IndexBuilder
    from lexicept.weighting import BM25
    from lexicept.words import WordVectorizer

    names = vocabulary.names
    concept_settings = {
        "backbone": backbone,
        "layer": layer,
        "num_latents": num_latents,
        "k": k,
        "architecture": architecture.value,
        "train_tokens": train_tokens,
        "seed": seed,
        "model": None if model is None else str(model.resolve()),
        "sae": str(Path(sae).resolve()) if sae is not None and Path(sae).exists() else sae,
        "width": width,
    }
    if model is not None and sae is not None:
        raise InputError("--model and --sae are two sources of concepts: choose one")
    if explanations is not None and ("concepts" not in names or (model or sae) is None):
        raise InputError("--explanations are of concepts that --sae or --model gives")
    words = WordVectorizer(language)  # an unknown language is refused before any work
    if "concepts" in names:
        require_concepts()
    builder = IndexBuilder(out)
    with closing(builder), ProgressBars() as progress:
        builder.add_documents(
            read_documents(corpus), concept_settings if "concepts" in names else {}
        )
        if "words" in names:
            builder.add_vocabulary(words, VocabularySettings(BM25()), progress)
        if "concepts" in names:
            from lexicept.naming import describe

            concepts = _concepts(builder, concept_settings, progress)
            explained = None if explanations is None else _explanations(explanations, concepts)
            limits = concepts.head.settings
            chosen = limits.weigh() if weighting is None else _weighting(weighting)
            settings = VocabularySettings(
                chosen,
                query_max_active_dims or limits.query_max_active_dims,
                document_max_active_dims or limits.document_max_active_dims,
            )
            found = builder.add_vocabulary(concepts, settings, progress)
            builder.add_atlas(
                describe(
                    concepts.encoder,
                    builder.contents,
                    found,
                    language=language,
                    explanations=explained,
                    progress=progress,
                )
            )
        index = builder.commit()
    _print_info(index, as_json)


@app.command()
def search(
    index: IndexArgument,
    query: str,
    top_k: Annotated[int, typer.Option(min=1, help="Results.")] = 10,
    vocabulary: SearchVocabularyOption = None,
    engine: SearchEngineOption = "exact",
    explain: Annotated[bool, typer.Option(help="Show what each score is made of.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Search an index."""
    from lexicept.index import Index

    _require_text(query)
    opened = Index.open(index, engine=engine)
    name = single_vocabulary(opened, vocabulary)
    hits = opened.search(query, top_k, name)
    results = [
        (
            hit,
            opened.document(hit.document_id),
            opened.explain(query, hit.document_id, name) if explain else None,
        )
        for hit in hits
    ]
    if not as_json:
        from rich.console import Console

        from lexicept.display import results_table

        console = Console()
        if results:
            console.print(results_table(query, results))
        else:
            console.print("no results: the query has no word or concept that a document has")
        return
    rows = []
    for rank, (hit, document, explanation) in enumerate(results, 1):
        row: dict[str, Any] = {"rank": rank, "id": hit.document_id, "score": hit.score}
        row |= {"title": document.title, "text": document.text}
        if explanation is not None:
            described = explanation.to_json()
            row |= {name: described[name] for name in ("prior", "contributions")}
        rows.append(row)
    print_json({"query": query, "results": rows})


@app.command()
def explain(
    index: IndexArgument,
    query: str,
    document_id: str,
    vocabulary: SearchVocabularyOption = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file instead.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the score of one document is made of, and what fired it."""
    from lexicept.index import Index

    _require_text(query)
    opened = Index.open(index)
    explanation = opened.explain(query, document_id, single_vocabulary(opened, vocabulary))
    document = opened.document(document_id)
    if html is not None:
        from lexicept.markup import explanation_page
        from lexicept.storage import replace_file

        replace_file(html, explanation_page(explanation, document).encode())
    elif as_json:
        print_json(explanation.to_json())
    else:
        from rich.console import Console

        from lexicept.display import explanation_view

        Console().print(explanation_view(explanation, document))


@app.command()
def evaluate(
    index: IndexArgument,
    dataset: Annotated[str, typer.Argument(help="A BEIR folder or an ir_datasets name.")],
    split: Annotated[str, typer.Option(help="Which judgements.")] = "test",
    vocabulary: SearchVocabularyOption = None,
    engine: SearchEngineOption = "exact",
    measure: Annotated[
        list[str] | None, typer.Option(help="More measures, in ir_measures' notation.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Write the TREC run here.")] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Test nDCG@10 against this TREC run (paired t-test).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Effectiveness and cost on judged queries."""
    from lexicept import evaluation
    from lexicept.corpora import read_qrels, read_queries
    from lexicept.index import Index

    opened = Index.open(index, engine=engine)
    name = single_vocabulary(opened, vocabulary)
    queries, qrels = list(read_queries(dataset, split)), list(read_qrels(dataset, split))
    found = evaluation.evaluate_index(opened, queries, qrels, name, measure or [])
    report: dict[str, Any] = dict(found.values)
    if run is not None:
        evaluation.write_run(run, found.run)
    if compare is not None:
        ours = evaluation.evaluate_queries(qrels, found.run, ["nDCG@10"])["nDCG@10"]
        other_run = evaluation.read_run(compare)
        other = evaluation.evaluate_queries(qrels, other_run, ["nDCG@10"])["nDCG@10"]
        report["t_test"] = evaluation.paired_t_test(ours, other)._asdict()
    if as_json:
        print_json(report)
    else:
        rows = [(key, f"{value:.4f}") for key, value in found.values.items()]
        if compare is not None:
            rows += [(f"t-test {key}", f"{v:.4f}") for key, v in report["t_test"].items()]
        print_table(f"{dataset}, {split}: {len(found.run)} queries", rows)


@app.command()
def update(index: IndexArgument, corpus: CorpusArgument, as_json: JsonOption = False) -> None:
    """Add a corpus' documents to an index, replacing those whose ids are there."""
    from lexicept import indexing
    from lexicept.corpora import read_documents
    from lexicept.display import ProgressBars

    with ProgressBars() as progress:
        added, replaced = indexing.update(index, read_documents(corpus), progress)
    print_report({"added": added, "replaced": replaced}, as_json)


@app.command()
def delete(
    index: IndexArgument,
    document_ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    as_json: JsonOption = False,
) -> None:
    """Delete documents from an index."""
    from lexicept import indexing

    print_report({"deleted": indexing.delete(index, document_ids)}, as_json)


@app.command()
def rra(
    index: IndexArgument,
    out: OutOption,
    alpha: Annotated[
        str, typer.Option(help="A number above 0, or auto: chosen on pseudo-queries.")
    ] = "auto",
    iterations: Annotated[int, typer.Option(min=1)] = 1,
    transform: Annotated[str, typer.Option(help="f of a weight (RRA, equation 1).")] = "1+x",
    as_json: JsonOption = False,
) -> None:
    """Re-weight an index by pragmatic reasoning (Rational Retrieval Acts) into another one."""
    from lexicept import indexing
    from lexicept.derive import RRASettings
    from lexicept.index import Index

    report: dict[str, Any] = {}
    indexing.refuse_existing(out)
    if alpha == "auto":
        chosen, tried = indexing.choose_alpha(Index.open(index), iterations, transform)
        report["pseudo_query_nDCG@10"] = {str(value): tried[value] for value in tried}
    else:
        try:
            chosen = float(alpha)
        except ValueError:
            raise InputError(f"--alpha takes a number or auto, not {alpha!r}") from None
    indexing.reweight(index, out, RRASettings(chosen, iterations, transform))
    print_report({"alpha": chosen, **report}, as_json)


@app.command()
def info(index: IndexArgument, as_json: JsonOption = False) -> None:
    """What an index holds."""
    from lexicept.index import Index

    _print_info(Index.open(index), as_json)


@app.command()
def verify(index: IndexArgument, as_json: JsonOption = False) -> None:
    """Check every file of an index: sizes, checksums, texts, and that the parts fit together.

    Exits with 1 where something is wrong, after a line for each thing.
    """
    from lexicept import verification
    from lexicept.display import ProgressBars

    with ProgressBars() as progress:
        found = verification.verify(index, progress)
    if as_json:
        print_json(found._asdict())
    else:
        for problem in found.problems:
            print(problem)
        print(f"{index}: {found.files} files, {len(found.problems) or 'no'} problems")
    if found.problems:
        raise typer.Exit(1)


def _weighting(choice: WeightingChoice) -> Weighting:
    from lexicept.weighting import BM25, Splade

    return Splade() if choice is WeightingChoice.splade else BM25(k3=1.0)


def _concepts(
    builder: IndexBuilder, settings: dict[str, Any], progress: Progress
) -> ConceptVectorizer:
    """A model's concepts, an SAE's, or those of the corpus."""
    from lexicept.concepts import BackboneSettings, ConceptVectorizer
    from lexicept.sae import SAESettings

    backbone = BackboneSettings(settings["backbone"], settings["layer"])
    if settings["model"] is not None:
        concepts = ConceptVectorizer.load(Path(settings["model"]))
    elif settings["sae"] is not None:
        concepts = ConceptVectorizer.pretrained(settings["sae"], backbone, settings["width"])
    else:
        concepts = ConceptVectorizer.train(
            builder.contents,
            backbone,
            SAESettings(
                settings["num_latents"],
                settings["k"],
                settings["train_tokens"],
                settings["architecture"],
                seed=settings["seed"],
            ),
            builder.work / "training",
            progress,
        )
    return concepts


def _explanations(path: Path, concepts: ConceptVectorizer) -> dict[int, str]:
    from lexicept.heads import SAEHead
    from lexicept.sae.explanations import read_explanations

    if not isinstance(concepts.head, SAEHead):
        raise InputError(f"{path}: explanations are of an SAE's latents, which this model has not")
    return read_explanations(path, concepts.head.sae)


def _require_text(query: str) -> None:
    try:
        query.encode()
    except UnicodeEncodeError:
        raise InputError("the query is not valid UTF-8") from None


def single_vocabulary(index: Index, choice: VocabularyChoice | None) -> str | None:
    """The vocabulary to search alone, or None for all of them."""
    if choice is None:
        return None
    present = [vocabulary.name for vocabulary in index.vocabularies]
    for name in choice.names:
        if name not in present:
            raise InputError(f"{index.path} has no {name}, only {', '.join(present)}")
    return choice.names[0] if len(choice.names) == 1 else None


def _print_info(index: Index, as_json: bool) -> None:
    files = index.manifest["files"].values()
    report: dict[str, Any] = {
        "path": str(index.path),
        "documents": len(index),
        "vocabularies": index.manifest["vocabularies"],
        "rra": index.manifest["rra"],
        "postings": int(index.engine.documents.size),
        "bytes": sum(entry["size"] for entry in files),
        "written_by": f"lexicept {index.manifest['lexicept']}",
    }
    if as_json:
        print_json(report)
        return
    rows = [("documents", f"{len(index):,}")]
    for entry in report["vocabularies"]:
        weighting = dict(entry["weighting"])
        name = weighting.pop("name")
        arguments = ", ".join(f"{key} {value}" for key, value in weighting.items())
        rows.append((entry["name"], f"{entry['size']:,} dimensions, {name} {arguments}".rstrip()))
        for side in ("query", "document"):
            if entry[f"{side}_max_active_dims"] is not None:
                rows.append(("", f"{entry[f'{side}_max_active_dims']} in a {side}"))
    if index.rra is not None:
        rows.append(("rra", ", ".join(f"{k} {v}" for k, v in report["rra"].items())))
    rows.append(("postings", f"{report['postings']:,}"))
    rows.append(("size", f"{report['bytes'] / 1e6:,.1f} MB"))
    print_table(str(index.path), rows)
