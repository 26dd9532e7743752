"""SAEs that we write are read by SAELens, with the same activations and outputs.

``LEXICEPT_SAE_PYTHON`` names the Python of an environment of its own that has it:
``pip install torch==2.13.0`` first, then ``pip install sae-lens``.
"""

import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

from lexicept.neural.sae.model import SAE
from lexicept.neural.sae_formats.libraries import save_saelens

PYTHON = os.environ.get("LEXICEPT_SAE_PYTHON", "")
THEIRS = """
import torch
from safetensors.torch import load_file, save_file
from sae_lens import SAE

sae = SAE.load_from_disk("sae", device="cpu")
x = load_file("x.safetensors")["x"]
torch.set_grad_enabled(False)
acts = sae.encode(x)
save_file(dict(acts=acts, out=sae.decode(acts)), "theirs.safetensors")
"""

pytestmark = pytest.mark.skipif(not PYTHON, reason="LEXICEPT_SAE_PYTHON names no Python")


@pytest.mark.parametrize(("k", "centred"), [(5, True), (5, False), (None, True)])
def test_activations_and_outputs(k, centred, tmp_path):
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
    save_saelens(sae, tmp_path / "sae")
    subprocess.run([PYTHON, "-c", THEIRS], check=True, capture_output=True, cwd=tmp_path)
    theirs = load_file(tmp_path / "theirs.safetensors")
    with torch.no_grad():
        acts, latents = sae.encode(x)
        dense = torch.zeros(50, 96).scatter(1, latents, acts)
        torch.testing.assert_close(theirs["acts"], dense)
        torch.testing.assert_close(theirs["out"], sae(x))
