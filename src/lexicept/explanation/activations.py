"""Activations of concepts on the tokens of a text, as text, HTML or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lexicept.explanation.contributions import Span
from lexicept.sanitize import safe

SHOWN = 3
"""Concepts of a token in the ``repr``."""


class Activation(NamedTuple):
    """The activation of a concept on a token."""

    number: int
    label: str
    activation: float


class ActiveToken(NamedTuple):
    """Characters of a text, and the concepts that are active there, the largest first."""

    span: Span
    activations: tuple[Activation, ...]


@dataclass(frozen=True)
class TextActivations(Sequence[ActiveToken]):
    """The tokens of a text in order, with activations before pooling."""

    text: str
    tokens: tuple[ActiveToken, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, position: Any) -> Any:
        return self.tokens[position]

    def __repr__(self) -> str:
        """Return a line for each token, with the largest activations."""
        lines = []
        for (start, end), activations in self.tokens:
            fired = [f"{a.label} {a.activation:.2f}" for a in activations[:SHOWN]]
            lines.append((safe(self.text[start:end]), safe("; ".join(fired))))
        width = max((len(token) for token, _ in lines), default=0)
        return "\n".join(f"{token:{width}}  {fired}".rstrip() for token, fired in lines)

    def _repr_html_(self) -> str:
        """Return a heat map of tokens' largest activations; a token's title has the concepts."""
        from html import escape

        active = [token.activations[0].activation for token in self.tokens if token.activations]
        largest = max(active, default=1.0)
        html, position = ['<p style="line-height:2;white-space:pre-wrap">'], 0
        for (start, end), activations in self.tokens:
            share = activations[0].activation / largest if activations else 0.0
            fired = [f"{a.label} (#{a.number}) {a.activation:.2f}" for a in activations]
            title = escape(safe("\n".join(fired)))
            html.append(escape(safe(self.text[position:start])))
            style = f"background:rgba(230,140,0,{share:.2f})"
            html.append(f'<span style="{style}" title="{title}">')
            html.append(f"{escape(safe(self.text[start:end]))}</span>")
            position = end
        return "".join([*html, escape(safe(self.text[position:])), "</p>"])

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        tokens = [
            {**span._asdict(), "activations": [entry._asdict() for entry in activations]}
            for span, activations in self.tokens
        ]
        return {"text": self.text, "tokens": tokens}
