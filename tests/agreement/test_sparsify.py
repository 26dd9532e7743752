"""SAEs saved by sparsify load with the activations that sparsify gives."""

import pytest
import torch

from lexicept.neural.sae_formats.pretrained import find_pretrained_sae

sparsify = pytest.importorskip("sparsify", reason="the extra bench has sparsify")


def test_a_saved_sparse_coder(tmp_path):
    torch.manual_seed(0)
    theirs = sparsify.SparseCoder(24, sparsify.SparseCoderConfig(expansion_factor=4, k=5))
    with torch.no_grad():
        theirs.encoder.bias.normal_()
        theirs.b_dec.normal_()
    theirs.save_to_disk(tmp_path / "layers.3")
    ours = find_pretrained_sae(tmp_path, layer=4).load()
    states = torch.randn(50, 24)
    with torch.no_grad():
        expected = theirs.encode(states)
        acts, latents = ours.encode(states)

        def dense(values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
            return torch.zeros(50, 96).scatter(1, indices, values)

        vectors = dense(acts, latents)
        torch.testing.assert_close(vectors, dense(expected.top_acts, expected.top_indices))
        torch.testing.assert_close(ours(states), theirs(states).sae_out)
