"""Known-item queries of sentences: their sources, their seed, and their words."""

from reproduction.sentences import from_texts

TEXTS = [
    "One two three four five. Too short. Six seven eight nine ten!",
    "",
    " ".join(f"w{i}" for i in range(40)),
    "一 二 三 四 五。 six",
]
SENTENCES = {
    0: {"One two three four five.", "Six seven eight nine ten!"},
    2: {" ".join(f"w{i}" for i in range(30))},
    3: {"一 二 三 四 五。"},
}


def test_every_query_is_a_sentence_of_its_document_or_half_of_one():
    drawn = {from_texts(TEXTS[:1], seed=seed)[1][0] for seed in range(40)}
    assert drawn == SENTENCES[0]
    for share, lengths in ((1.0, [5, 5, 30]), (0.5, [3, 3, 15])):
        sources, queries = from_texts(TEXTS, share=share)
        assert sorted(sources.tolist()) == [0, 2, 3]
        assert sorted(map(len, map(str.split, queries))) == lengths
        for source, query in zip(sources.tolist(), queries, strict=True):
            words = query.split()
            shared = ([w for w in s.split() if w in words] for s in SENTENCES[source])
            assert words in shared
    assert len(from_texts(TEXTS, count=2)[1]) == 2
    assert from_texts(["", "short"])[1] == []
