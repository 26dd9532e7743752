"""Queries for documents by a causal language model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lexicept.corpora import Document
from lexicept.errors import InputError, first_line_of
from lexicept.neural.backbones.loading import no_remote_code, quiet_transformers
from lexicept.progress import Progress, silent
from lexicept.storage.files import fingerprint
from lexicept.storage.workspace import Workspace
from lexicept.training.ranking.neural_teachers import model_identity
from lexicept.vectors import Integers

PROMPT = (
    "Write one short question that the following text answers. "
    "Reply with the question only.\n\nText: {text}\n\nQuestion:"
)
"""Prompt of the model; ``{text}`` stands for title and text of a document."""

QUERY_TOKENS = 48
"""Largest number of tokens of a query."""

TEXT_TOKENS = 384
"""Largest number of tokens of a document to read."""

BATCH = 16
"""Documents read at once, and of a unit of work; interrupted generation resumes between units."""


def generate_known_items(
    model_name_or_path: str,
    num_documents: int,
    document: Callable[[int], Document],
    folder: Path,
    count: int = 500,
    progress: Progress = silent,
) -> tuple[Integers, list[str]]:
    """Write one query for each of some random documents; return document numbers and queries.
    Raises InputError if the model can't be loaded, or wrote no queries; see ``generate_queries``.

    Args:
        folder: cache of queries, in a file named after the model and the documents.
    """
    numbers = np.random.default_rng(0).permutation(num_documents)[:count].tolist()
    documents = [document(number) for number in numbers]
    number_of = {d.id: number for d, number in zip(documents, numbers, strict=True)}
    identity = [json.dumps(model_identity(model_name_or_path)), PROMPT]
    name = fingerprint([*identity, *(text for d in documents for text in (d.id, d.content))])[:16]
    out = folder / f"queries-{name}.jsonl"
    if out.exists():
        pairs = _read(out)
    else:
        pairs = generate_queries(model_name_or_path, documents, out, progress)
    if not pairs:
        raise InputError(f"{model_name_or_path} wrote no queries")
    return np.array([number_of[name] for name, _ in pairs]), [query for _, query in pairs]


def generate_queries(
    model_name_or_path: str, documents: Sequence[Document], out: Path, progress: Progress = silent
) -> list[tuple[str, str]]:
    """Write the likeliest query for every document to a file; return document ids and queries.

    Calling it again resumes interrupted work (see ``storage.workspace``). A model with a chat
    template gets the prompt as the user's message. The first line of an answer is the query;
    documents with an empty answer are skipped. Raises InputError if the model can't be loaded, and
    for no documents, an existing ``out``, unfinished work with another model or documents, or a
    second writing process.

    Args:
        out: file to create, JSON Lines ``{"document_id", "query"}``.
    """
    tokenizer, model = _load(model_name_or_path)
    writer = _Writer(tokenizer, model)
    used = {
        "model": model_identity(model_name_or_path),
        "prompt": PROMPT,
        "documents": fingerprint(text for d in documents for text in (d.id, d.content)),
    }
    with Workspace(out, "generate queries", used) as work:
        file = work.growing("queries.jsonl")
        for start in range(file.done, len(documents), BATCH):
            batch = documents[start : start + BATCH]
            lines = [
                json.dumps({"document_id": document.id, "query": query}, ensure_ascii=False)
                for document, query in zip(batch, writer(batch), strict=True)
                if query
            ]
            file.append_lines(lines, start + len(batch))
            progress("generating", file.done, len(documents))
        work.publish(file.path)
    return _read(out)


def _read(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [(fields["document_id"], fields["query"]) for fields in records]


class _Writer:
    """Documents → queries, a batch at a time."""

    def __init__(self, tokenizer: Any, model: Any) -> None:
        self._tokenizer = tokenizer
        self._model = model
        context = getattr(model.config, "max_position_embeddings", None) or 2**31
        around = len(tokenizer(self._prompt("")).input_ids) + QUERY_TOKENS
        # A cut text may have a few tokens more when it is tokenized again.
        self._text_tokens = min(TEXT_TOKENS, context - around - 8)
        if self._text_tokens < 1:
            raise InputError(f"prompt and answer take {around} of the model's {context} tokens")

    def __call__(self, documents: Sequence[Document]) -> list[str]:
        """Return the query of each document; an empty text for an empty answer."""
        inputs = self._tokenizer(
            [self._prompt(self._cut(document.content)) for document in documents],
            return_tensors="pt",
            padding=True,
            add_special_tokens=self._tokenizer.chat_template is None,
        ).to(self._model.device)
        output = self._model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=QUERY_TOKENS,
            pad_token_id=self._tokenizer.pad_token_id,
        )
        answers = self._tokenizer.batch_decode(
            output[:, inputs.input_ids.shape[1] :], skip_special_tokens=True
        )
        return [first_line(answer) for answer in answers]

    def _cut(self, text: str) -> str:
        ids = self._tokenizer(text, add_special_tokens=False).input_ids
        if len(ids) <= self._text_tokens:
            return text
        return str(self._tokenizer.decode(ids[: self._text_tokens], skip_special_tokens=True))

    def _prompt(self, text: str) -> str:
        prompt = PROMPT.replace("{text}", text)
        if self._tokenizer.chat_template is None:
            return prompt
        return str(
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
            )
        )


def first_line(answer: str) -> str:
    """Return the first line of an answer, with single spaces."""
    return " ".join(answer.strip().partition("\n")[0].split())


def _load(name: str) -> tuple[Any, Any]:
    try:
        with quiet_transformers(), no_remote_code(name):
            tokenizer = AutoTokenizer.from_pretrained(
                name, padding_side="left", trust_remote_code=False
            )
            model = AutoModelForCausalLM.from_pretrained(
                name, dtype="auto", trust_remote_code=False
            ).eval()
    except (OSError, ValueError) as error:
        reason = first_line_of(error)
        raise InputError(f"language model {name!r} can't be loaded: {reason}") from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer, model.to("cuda" if torch.cuda.is_available() else "cpu")
