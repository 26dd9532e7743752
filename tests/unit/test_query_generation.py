"""Queries of a language model: a tiny random one, against a loop of argmax by hand."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lexicept.corpora import Document
from lexicept.errors import InputError
from reproduction import query_generation
from reproduction.query_generation import first_line, generate_queries
from support.processes import KilledError

WORDS = [f"w{i}" for i in range(40)]
DOCUMENTS = [
    Document("d1", "w1 w2 w3", "w9"),
    Document("d2", ""),
    Document("d3", " ".join(WORDS)),
    Document("d4", "w5 w6 w7 w8"),
    Document("d5", "w7"),
]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {
        "PROMPT": "w0 {text} w1", "QUERY_TOKENS": 6, "TEXT_TOKENS": 12, "BATCH": 2
    }.items():  # fmt: skip
        monkeypatch.setattr(query_generation, name, value)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A GPT-2 with random weights that reads 48 tokens, and a tokenizer of 40 words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    from lexicept.neural.backbones.loading import quiet_transformers

    folder = tmp_path_factory.mktemp("gpt2")
    vocabulary = {word: number for number, word in enumerate(["<end>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing("<end> $A", special_tokens=[("<end>", 0)])
    PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<end>", unk_token="<unk>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(vocabulary), n_positions=48, n_embd=16, n_layer=1, n_head=2,
        initializer_range=0.5, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    with quiet_transformers():
        GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def by_hand(folder: Path, prompt: str, length: int, special: bool = True) -> str:
    """The likeliest words, one at a time, of a text alone."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer(prompt, add_special_tokens=special).input_ids
    start = len(ids)
    with torch.inference_mode():
        for _ in range(length):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == 0:
                break
    return str(tokenizer.decode(ids[start:], skip_special_tokens=True))


def test_greedy_queries_are_the_likeliest_words(gpt2, tmp_path):
    out = tmp_path / "out"
    found = generate_queries(str(gpt2), DOCUMENTS, out)
    prompts = {
        "d1": "w0 w9 w1 w2 w3 w1",
        "d2": "w0 w1",
        "d3": f"w0 {' '.join(WORDS[:12])} w1",  # cut
        "d4": "w0 w5 w6 w7 w8 w1",
        "d5": "w0 w7 w1",
    }
    expected = {name: by_hand(gpt2, prompt, 6) for name, prompt in prompts.items()}
    assert dict(found) == {name: query for name, query in expected.items() if query}
    assert len(found) >= 3
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["document_id"], line["query"]) for line in lines] == found
    assert os.listdir(tmp_path) == ["out"]


def test_a_text_is_cut_to_what_the_model_takes(gpt2, tmp_path, monkeypatch):
    monkeypatch.setattr(query_generation, "QUERY_TOKENS", 20)
    monkeypatch.setattr(query_generation, "TEXT_TOKENS", 384)
    found = dict(generate_queries(str(gpt2), DOCUMENTS[2:3], tmp_path / "out"))
    # 48 positions, one for the start, 2 words of the prompt, 20 new tokens, 8 to spare.
    assert found == {"d3": by_hand(gpt2, f"w0 {' '.join(WORDS[:17])} w1", 20)}
    monkeypatch.setattr(query_generation, "QUERY_TOKENS", 45)
    with pytest.raises(InputError, match="prompt and answer take 48 of the model's 48 tokens"):
        generate_queries(str(gpt2), DOCUMENTS, tmp_path / "b")


def test_chat_templates_are_used(gpt2, tmp_path):
    from shutil import copytree

    from transformers import AutoTokenizer

    chat = tmp_path / "chat"
    copytree(gpt2, chat)
    tokenizer = AutoTokenizer.from_pretrained(chat)
    tokenizer.chat_template = (
        "{% for m in messages %}w30 {{ m.role }} {{ m.content }} {% endfor %}"
        "{% if add_generation_prompt %}w31{% endif %}"
    )
    tokenizer.save_pretrained(chat)
    found = dict(generate_queries(str(chat), DOCUMENTS[:1], tmp_path / "out"))
    assert found == {"d1": by_hand(gpt2, "w30 user w0 w9 w1 w2 w3 w1 w31", 6, special=False)}


@pytest.mark.parametrize(
    ("answer", "query"),
    [("\n what  is\tit? \nmore", "what is it?"), ("", ""), (" \n ", ""), ("another", "another")],
)
def test_a_query_is_the_first_line_of_an_answer(answer, query):
    assert first_line(answer) == query


def test_killed_generation_goes_on(gpt2, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "out"
    expected = generate_queries(str(gpt2), DOCUMENTS, whole)
    reports: list[tuple[Any, ...]] = []

    def kill_at(position):
        def progress(*report):
            reports.append(report)
            if report[1] == position:
                raise KilledError

        return progress

    for position in (2, 4):
        with pytest.raises(KilledError):
            generate_queries(str(gpt2), DOCUMENTS, out, kill_at(position))
    assert not out.exists()
    assert generate_queries(str(gpt2), DOCUMENTS, out, kill_at(-1)) == expected
    assert reports == [("generating", done, 5) for done in (2, 4, 5)]
    assert out.read_bytes() == whole.read_bytes()


def test_models_and_documents_that_are_refused(gpt2, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"language model '.*empty' can't be loaded"):
        generate_queries(str(tmp_path / "empty"), DOCUMENTS, tmp_path / "out")
    with pytest.raises(InputError, match="nothing to write"):
        generate_queries(str(gpt2), [], tmp_path / "out")
