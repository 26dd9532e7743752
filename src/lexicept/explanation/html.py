"""Explanations as HTML: highlighted text, a fragment for other pages, and a page of its own."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from lexicept.corpora import Document
from lexicept.explanation.contributions import (
    Contribution,
    Explanation,
    Span,
    merged,
    spellings,
    split_spans,
)
from lexicept.sanitize import safe

STYLE = """
:root { color-scheme: light dark; --ink: #1d2025; --paper: #fdfdfc; --faint: #596069;
  --edge: #d9dce1; --mark: #ffe58a; --words: #0f7390; --concepts: #8a3fa0; --prior: #596069; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ed; --paper: #15171b; --faint: #a3abb6;
  --edge: #363b44; --mark: #6b5600; --words: #5cc0dd; --concepts: #d08be3; --prior: #a3abb6; } }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1, h2 { font-size: 1.2rem; margin: 1.2rem 0 .3rem; }
mark { color: inherit; background: var(--mark); border-radius: .15em; }
.text { white-space: pre-wrap; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--faint); }
th, td { padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--edge); text-align: left;
  vertical-align: baseline; }
thead th { color: var(--faint); font-weight: normal; }
tbody th { font-weight: 600; min-width: 8rem; }
td.number { white-space: nowrap; }
svg.bar { width: 6rem; height: .6rem; margin-right: .4rem; }
.words { color: var(--words); }
.concepts { color: var(--concepts); }
.prior { color: var(--prior); }
rect { fill: currentColor; }
"""


def highlighted(text: str, spans: Iterable[Span]) -> str:
    """HTML of a text, made ``safe`` and escaped, with the spans marked; overlapping ones become
    one."""
    parts = []
    position = 0
    for start, end in merged(spans):
        parts.append(_shown(text[position:start]))
        parts.append(f"<mark>{_shown(text[start:end])}</mark>")
        position = end
    return "".join([*parts, _shown(text[position:])])


def _shown(text: str) -> str:
    return escape(safe(text))


def explanation_page(explanation: Explanation, document: Document) -> str:
    """An HTML page that needs nothing else."""
    name = _shown(document.title or document.id)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Why {name} was found</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{explanation_fragment(explanation, document)}
</main>
</body>
</html>
"""


def explanation_fragment(explanation: Explanation, document: Document) -> str:
    """The query, what the score is made of, and the document, as HTML; ``STYLE`` goes with it."""
    parts = explanation.contributions
    asked = highlighted(explanation.query, (s for part in parts for s in part.query_spans))
    title, text = split_spans(document, (s for part in parts for s in part.document_spans))
    rows = "\n".join(_row(explanation, part) for part in parts)
    return f"""<section class="explanation">
<h1 dir="auto">{asked}</h1>
<div class="scroll">
<table>
<caption>What the score {explanation.score:.4f} is made of</caption>
<thead><tr><th scope="col">Word or concept</th><th scope="col">Share</th><th scope="col">Score</th>
<th scope="col">Weights, query × document</th><th scope="col">In the query</th>
<th scope="col">In the document</th></tr></thead>
<tbody>
{rows}{_prior(explanation)}
</tbody>
</table>
</div>
<h2 dir="auto">{highlighted(document.title, title) or _shown(document.id)}</h2>
<p class="text" dir="auto">{highlighted(document.text, text)}</p>
</section>"""


def _row(explanation: Explanation, part: Contribution) -> str:
    weights = f"{part.query_weight:.3f} × {part.document_weight:.3f}"
    asked = ", ".join(spellings(explanation.query, part.query_spans))
    found = ", ".join(spellings(explanation.content, part.document_spans))
    return f"""<tr><th scope="row" dir="auto"><span class="{escape(part.vocabulary)}">\
{_shown(part.term)}</span></th>{_share(explanation, part.vocabulary, part.score)}
<td class="number">{weights}</td><td dir="auto">{_shown(asked)}</td>\
<td dir="auto">{_shown(found)}</td></tr>"""


def _prior(explanation: Explanation) -> str:
    if not explanation.prior:
        return ""
    share = _share(explanation, "prior", explanation.prior)
    return f"""
<tr><th scope="row" class="prior">document prior</th>{share}<td></td><td></td><td></td></tr>"""


def _share(explanation: Explanation, kind: str, score: float) -> str:
    """A bar, which the largest part fills, and numbers."""
    largest = max([explanation.prior, *(part.score for part in explanation.contributions[:1])])
    return f"""<td class="number {escape(kind)}"><svg class="bar" aria-hidden="true">\
<rect width="{score / largest:.1%}" height="100%"/></svg>{score / explanation.score:.1%}</td>\
<td class="number">{score:.4f}</td>"""
