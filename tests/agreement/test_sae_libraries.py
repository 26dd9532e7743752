"""SAEs that we write are read by SAELens and sparsify, with the same activations and outputs.

``LEXICEPT_SAE_PYTHON`` names the Python of an environment of its own that has both:
``pip install torch==2.13.0`` first, then ``pip install sae-lens eai-sparsify``.
"""

import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

from lexicept.neural.sae.model import SAE
from lexicept.neural.sae_formats.libraries import save_saelens, save_sparsify

PYTHON = os.environ.get("LEXICEPT_SAE_PYTHON", "")
READ = {
    save_saelens: "from sae_lens import SAE; sae = SAE.load_from_disk(path, device='cpu')",
    save_sparsify: "from sparsify import SparseCoder; "
    "(sae,) = SparseCoder.load_many(path, local=True, device='cpu').values()",
}
ENCODE = {
    save_saelens: "acts = sae.encode(x); out = sae.decode(acts)",
    save_sparsify: "top = sae.encode(x); out = sae(x).sae_out; "
    "acts = torch.zeros(len(x), 96).scatter(1, top.top_indices, top.top_acts)",
}

pytestmark = pytest.mark.skipif(not PYTHON, reason="LEXICEPT_SAE_PYTHON names no Python")


@pytest.mark.parametrize(
    ("write", "k", "centred"),
    [(write, 5, True) for write in READ] + [(save_saelens, 5, False), (save_saelens, None, True)],
)
def test_activations_and_outputs(write, k, centred, tmp_path):
    torch.manual_seed(0)
    sae = SAE(24, 96, k, architecture="topk" if k else "jumprelu", centred=centred)
    sae.origin["hook"] = "encoder.layer.3"
    with torch.no_grad():
        for values in (sae.b_enc, sae.b_dec, sae.mean):
            values.normal_()
        sae.scale.fill_(2.0)
        if k is None:
            sae.threshold.uniform_(0, 1)
    x = torch.randn(50, 24) * 3
    save_file({"x": x}, tmp_path / "x.safetensors")
    (tmp_path / "sae").mkdir()
    write(sae, tmp_path / "sae")
    code = "; ".join(
        [
            "import torch; from safetensors.torch import load_file, save_file",
            "path = 'sae'; x = load_file('x.safetensors')['x']",
            READ[write],
            "torch.set_grad_enabled(False)",
            ENCODE[write],
            "save_file(dict(acts=acts, out=out), 'theirs.safetensors')",
        ]
    )
    subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, cwd=tmp_path)
    theirs = load_file(tmp_path / "theirs.safetensors")
    with torch.no_grad():
        acts, latents = sae.encode(x)
        dense = torch.zeros(50, 96).scatter(1, latents, acts)
        torch.testing.assert_close(theirs["acts"], dense)
        torch.testing.assert_close(theirs["out"], sae(x))
