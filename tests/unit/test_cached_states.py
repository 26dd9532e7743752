import numpy as np
import pytest
import torch

from lexicept.errors import InputError, LexiceptWarning
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae import cached_states as module
from lexicept.neural.sae.cached_states import CachedStates, cached_reader
from support.processes import KilledError
from support.tiny import save_decoder, text, tiny_backbone

TEXTS = [text(1, 2, 3), "", text(*range(100)), text(7), "", text(5, 5, 6, 2), text(9, 8)]


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch):
    monkeypatch.setattr(module, "SHARD", 3)


def folders(path):
    return [item for item in path.iterdir() if item.is_dir()]


def states_of(backbone, one):
    """The states of a text's tokens, window by window, each once."""
    chunks = []
    for window in backbone.windows([one]):
        ids = torch.tensor([window.token_ids])
        with torch.no_grad():
            states = backbone.states(ids, torch.ones_like(ids))[0]
        chunks.append(states[torch.tensor(window.left_out) == 0])
    return torch.cat(chunks)


def test_cached_states_are_the_backbone_s_in_half_precision(bert, tmp_path):
    cached = CachedStates.build(tmp_path, bert, TEXTS)
    assert len(cached) == 7
    states, position = cached.read(range(7))
    assert states.dtype == torch.float32
    for i, sample in enumerate(TEXTS):
        expected = states_of(bert, sample)
        assert torch.allclose(states[position == i], expected, rtol=2e-3, atol=1e-4)
    assert len(bert.windows([TEXTS[2]])) == 3  # of 62 tokens, neighbours sharing 32
    assert (position == 2).sum() == len(TEXTS[2].split())
    assert np.load(folders(tmp_path)[0] / "000000.npy").dtype == np.float16


def test_another_window_has_other_states_and_half_precision_has_an_end(tmp_path):
    backbone = tiny_backbone(tmp_path / "bert")
    whole, _ = CachedStates.build(tmp_path, backbone, TEXTS).read([2])
    backbone.max_seq_length = 20
    assert not torch.equal(CachedStates.build(tmp_path, backbone, TEXTS).read([2])[0], whole)
    norms = [part for part in backbone.modules() if isinstance(part, torch.nn.LayerNorm)]
    torch.nn.init.constant_(norms[-1].weight, 1e6)
    with pytest.raises(InputError, match="states beyond 65,504, or not finite"):
        CachedStates.build(tmp_path, backbone, TEXTS)


def test_any_texts_in_any_order(bert, tmp_path):
    cached = CachedStates.build(tmp_path, bert, TEXTS)
    everything, position = cached.read(range(7))
    states, positions = cached.read([5, 1, 0, 5])
    assert positions.tolist() == [0] * 4 + [2] * 3 + [3] * 4
    for i, n in enumerate([5, 1, 0, 5]):
        assert torch.equal(states[positions == i], everything[position == n])
    cut, positions = cached.read([2, 0, 5], max_tokens=2)
    assert positions.tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.equal(cut[:2], everything[position == 2][:2])


def test_an_sae_reads_what_is_cached(bert, tmp_path):
    documents = CachedStates.build(tmp_path / "documents", bert, TEXTS)
    queries = CachedStates.build(tmp_path / "queries", bert, TEXTS[3:])
    read = cached_reader([documents, queries], torch.device("cpu"))
    expected = torch.cat([documents.read([6, 0])[0], queries.read([3, 0])[0]])
    assert torch.equal(read([6, 0, 10, 7]), expected)  # 7 is the first query
    assert read([1, 8]).shape == (0, 32)
    doubled = cached_reader([queries], torch.device("cpu"), lambda states: 2 * states)
    assert torch.equal(doubled([0]), 2 * queries.read([0])[0])


def test_texts_without_tokens(bert, tmp_path):
    cached = CachedStates.build(tmp_path, bert, ["", "", "", ""])
    states, position = cached.read([3, 0])
    assert states.shape == (0, 32)
    assert position.shape == (0,)
    features = cached.features([3, 0, 1])
    assert features["token_mask"].tolist() == [[False]] * 3
    assert features["window_text"].tolist() == [0, 1, 2]
    features = CachedStates.build(tmp_path / "some", bert, TEXTS).features([1, 3, 4, 0])
    assert features["token_mask"].ravel().tolist() == [True] * 4 + [False] * 2
    assert features["window_text"].tolist() == [1, 3, 3, 3, 0, 2]


def test_through_a_head_they_are_as_good_as_the_backbone(bert, tmp_path):
    torch.manual_seed(0)
    head = VocabularyHead(torch.randn(20, 32), torch.randn(20), ["x"] * 20)
    encoder = Encoder.of(bert, head)
    cached = CachedStates.build(tmp_path, bert, TEXTS)
    indices = [4, 2, 0, 5, 1, 3]
    expected = encoder.encode_document([TEXTS[i] for i in indices]).to_dense()
    with torch.no_grad():
        actual = head(cached.features(indices), task="document")["sentence_embedding"]
    assert torch.allclose(actual, expected, rtol=5e-3, atol=5e-3)
    assert (expected.amax(dim=1) > 0.1).tolist() == [bool(TEXTS[i]) for i in indices]


@pytest.mark.parametrize("stop", [3, 6])
def test_a_killed_build_goes_on(bert, tmp_path, monkeypatch, stop):
    def kill(stage, done, total, detail=""):
        assert (stage, total) == ("states", 7)
        if done == stop:
            raise KilledError

    with pytest.raises(KilledError):
        CachedStates.build(tmp_path, bert, TEXTS, kill)
    (work,) = tmp_path.glob("*.partial/states")
    finished = {path.name: path.stat().st_mtime_ns for path in work.glob("00000?.npy")}
    assert len(finished) >= stop // 3  # the writer may be ahead
    finished.pop("000002.npy", None)
    (work / "000002.npy").write_bytes(b"half a file")
    (work / "000002.starts.npy").write_bytes(b"half a file")
    resumed = CachedStates.build(tmp_path, bert, TEXTS).read(range(7))
    (done,) = folders(tmp_path)
    unbroken = CachedStates.build(tmp_path / "unbroken", bert, TEXTS).read(range(7))
    assert all(torch.equal(a, b) for a, b in zip(resumed, unbroken, strict=True))
    assert all((done / name).stat().st_mtime_ns == before for name, before in finished.items())


def test_damaged_states_are_computed_again(bert, tmp_path):
    expected = CachedStates.build(tmp_path, bert, TEXTS).read(range(7))[0]
    (folder,) = folders(tmp_path)
    for name in ("000001.npy", "000001.starts.npy"):
        for data in (b"", (folder / name).read_bytes()[:-2], bytes(200)):
            (folder / name).write_bytes(data)
            with pytest.warns(LexiceptWarning, match=rf"{name} has .*: made again"):
                again = CachedStates.build(tmp_path, bert, TEXTS).read(range(7))[0]
            assert torch.equal(again, expected)


def test_other_texts_or_another_backbone_have_states_of_their_own(bert, tmp_path):
    others = (TEXTS[:-1], [*TEXTS[:-1], "other"], TEXTS[::-1])
    for texts in (TEXTS, *others, TEXTS):
        CachedStates.build(tmp_path / "states", bert, texts)
    assert len(folders(tmp_path / "states")) == 4
    other = tiny_backbone(tmp_path / "bert")
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1
    CachedStates.build(tmp_path / "states", other, TEXTS)
    assert len(folders(tmp_path / "states")) == 5


def test_the_same_weights_with_other_attention(tmp_path):
    folder = save_decoder(tmp_path / "llama")
    for bidirectional in (True, False):
        backbone = Backbone.from_pretrained(folder, bidirectional=bidirectional)
        CachedStates.build(tmp_path / "states", backbone, TEXTS)
    assert len(folders(tmp_path / "states")) == 2


def test_cut_texts_and_special_tokens_have_states_of_their_own(tmp_path):
    backbone = tiny_backbone(tmp_path / "bert")
    whole = CachedStates.build(tmp_path / "states", backbone, TEXTS)
    backbone.cut(None, 10)  # special ones count
    cut = CachedStates.build(tmp_path / "states", backbone, TEXTS)
    assert [len(states.read([2])[0]) > 8 for states in (whole, cut)] == [True, False]
    lengths = []
    for special in (False, True):
        backbone.special_tokens = special
        lengths.append(
            len(CachedStates.build(tmp_path / "states2", backbone, ["baba"]).read([0])[0])
        )
    assert lengths == [1, 3]


def test_low_precision_is_near(bert, tmp_path, bfloat16):
    exact, _ = CachedStates.build(tmp_path / "exact", bert, TEXTS).read(range(7))
    rough, _ = CachedStates.build(tmp_path / "rough", bert, TEXTS, bf16=True).read(range(7))
    assert not torch.equal(rough, exact)
    assert float((rough - exact).norm() / exact.norm()) < 0.05
    assert torch.equal(
        CachedStates.build(tmp_path / "exact", bert, TEXTS, bf16=True).read(range(7))[0], rough
    )


def test_windows_are_found_by_their_tokens(bert, tmp_path):
    cached = CachedStates.build(tmp_path, bert, TEXTS)
    everything, position = cached.read(range(7))
    windows = bert.windows([TEXTS[2], TEXTS[0]])
    result = [cached.find(window) for window in windows]
    assert torch.equal(torch.cat(result[:3]), everything[position == 2])
    assert torch.equal(result[3], everything[position == 0])
    (empty,), (other,) = bert.windows([""]), bert.windows([text(1, 2)])
    assert cached.find(empty) is None
    assert cached.find(other) is None
    assert cached.find(windows[3]._replace(left_out=[0, *windows[3].left_out[1:]])) is None


def test_the_blocks_are_run_for_unknown_windows_of_documents_only(bert, tmp_path, monkeypatch):
    cached = CachedStates.build(tmp_path, bert, TEXTS[:3])
    windows = bert.windows([TEXTS[3], TEXTS[0], "", TEXTS[2], TEXTS[5]])

    def read(task):
        states_of_windows = [None] * len(windows)
        for window_ids, states in bert.token_states(windows, task):
            lengths = [windows[i].left_out.count(0) for i in window_ids]
            for n, hidden in zip(window_ids, states.split(lengths), strict=True):
                states_of_windows[n] = hidden
        return states_of_windows

    expected, run = read("document"), []
    states = bert.states
    monkeypatch.setattr(bert, "states", lambda *a: run.append(len(a[0])) or states(*a))
    monkeypatch.setattr(bert, "known", cached)
    result = read("document")
    assert run == [3]  # of six windows: texts 0 and 4, and the empty one
    for left, other in zip(result, expected, strict=True):
        assert torch.allclose(left, other, rtol=2e-3, atol=1e-4)
    assert torch.equal(result[1], cached.read([0])[0])
    monkeypatch.setattr("lexicept.neural.backbones.backbone.BATCH_TOKENS", 5)
    assert all(torch.equal(a, b) for a, b in zip(read("document")[1:2], result[1:2], strict=True))
    run.clear()
    read("query")
    assert sum(run) == len(windows)
