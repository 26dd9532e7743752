"""An index and an encoder shared by threads give each the results that it would get alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import lexicept
from lexicept.neural.vectorizers.concepts import ConceptVectorizer
from support.threads import differing, open_questions


@pytest.fixture
def index(texts, tmp_path):
    return lexicept.build([text for text in texts if text], tmp_path / "index")


def test_searches_of_threads_are_those_of_one(index):
    assert differing(index, threads=8, queries=12) == 0


def test_threads_share_an_encoder(encoder):
    """Without the lock that an index puts around it."""
    queries = open_questions(16)
    vectorizer = ConceptVectorizer(encoder)
    expected = [vectorizer.encode_query(query).tf.toarray() for query in queries]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4):
            found = pool.map(lambda query: vectorizer.encode_query(query).tf.toarray(), queries)
            assert all(map(np.array_equal, found, expected))


def test_threads_replace_states_for_themselves_only(encoder):
    """A change of a block's output by one thread is not seen by the others."""
    backbone = encoder.backbone
    features = backbone.preprocess(["a query"])
    ids, mask = features["input_ids"], features["attention_mask"]
    with torch.no_grad():
        plain = backbone.states(ids, mask)

        def states(zero):
            if not zero:
                return torch.equal(backbone.states(ids, mask), plain)
            with backbone.hooked(1, torch.zeros_like):
                return not torch.equal(backbone.states(ids, mask), plain)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(torch.no_grad()(states), [True, False] * 40))
