"""The section on large weights that nothing in the text explains."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from lexicept.analysis.wacky import LARGEST, WackyFinder
from lexicept.reports.material import Subject
from lexicept.reports.page import Block, Column, Number, Numbers, Section, Table, text_column
from lexicept.reports.wording import count, cut, percent, three, two
from lexicept.vectors import canonical_csr

COMPANY = 2000
"""Most documents that a weight is compared with."""

JUDGED = 50
"""Documents whose largest weights are judged."""

SHOWN = 12


def unexplained(subject: Subject) -> Section:
    """Write the section with large weights of concepts that have no explanation."""
    rows = subject.sample(COMPANY)
    vectors = subject.vectors("concepts", rows).weights
    words = subject.vectors("words", rows).weights
    labels = canonical_csr(subject.index.vectorizer("words").queries(subject.terms("concepts")))
    finder = WackyFinder(vectors, words, sp.csr_array(labels[:, : words.shape[1]]))
    judged = np.sort(np.random.default_rng(0).permutation(rows.size)[:JUDGED])
    weights = finder.in_documents(judged.tolist())
    looked_at = int(np.minimum(np.diff(vectors.indptr)[judged], LARGEST).sum())
    terms = subject.terms("concepts")
    table = []
    for wacky in weights[:SHOWN]:
        document = subject.index.stored(int(rows[wacky.row]))
        shown = f"{document.id}: {cut(document.content, 140)}"
        table.append((terms[wacky.dimension], shown, wacky.weight, wacky.share, wacky.company))
    share = len(weights) / max(looked_at, 1)
    meaning = (
        f"of the {looked_at:,} largest weights of {judged.size:,} documents ({percent(share)})"
    )
    blocks: list[Block] = [Numbers([Number("Unexplained", count(len(weights)), meaning)])]
    if table:
        blocks.append(
            Table(
                "The largest of them",
                [
                    text_column("Concept"),
                    text_column("Document"),
                    Column("Weight", three),
                    Column("Share of the document", percent),
                    Column("Company", two),
                ],
                table,
                "Share of the document: share of the sum of its concepts' weights. "
                "Company: the probability that a document with the concept has more words in "
                "common with this one than a document without it has; 0.50 is chance.",
            )
        )
    return Section(
        "unexplained",
        "Unexplained weights",
        "A concept's weight in a document counts as explained if a word of its label is in the "
        "document, or if other documents with the concept have similar words. The weights listed "
        "here are explained by neither: the model is wrong, or the concept has a wrong label. "
        f"The {LARGEST} largest weights of {judged.size:,} documents were judged by comparison "
        f"with {rows.size:,} documents, both drawn at random.",
        blocks,
    )
