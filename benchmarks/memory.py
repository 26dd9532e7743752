"""Peak memory of encoding with a large vocabulary, against the bare backbone's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import Table, resident
from lexicept.neural.backbones.backbone import Backbone
from lexicept.neural.encoders.encoder import Encoder
from lexicept.neural.heads.sae import SAEHead
from lexicept.neural.sae.model import SAE

NUM_LATENTS, TEXTS, WORDS = 131_072, 8, 505
"""Words of a text, 507 tokens with special tokens."""

NAMES = {"backbone": "bare backbone, same windows", "encoder": "lexicept `encode_activations`"}


def run() -> list[Table]:
    """Measure each case in a process of its own."""
    with TemporaryDirectory() as folder:
        sae = SAE(Backbone.from_pretrained().get_embedding_dimension(), NUM_LATENTS, 8)
        Encoder.of(Backbone.from_pretrained(), SAEHead(sae)).save(folder, create_model_card=False)
        peaks = {}
        for name in NAMES:
            command = [sys.executable, "-m", "benchmarks.memory", name, folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            peaks[name] = float(done.stdout)
    rows = [
        [NAMES[name], f"{peak:.0f} MB", f"{peak / peaks['backbone']:.2f} ×"]
        for name, peak in peaks.items()
    ]
    return [Table("memory", [f"{NUM_LATENTS:,} latents", "peak", "peak / bare"], rows)]


def measure(name: str, folder: Path) -> float:
    """Return the peak resident memory of this process in MB after encoding the texts."""
    texts = [" ".join(["word"] * WORDS)] * TEXTS
    if name == "encoder":
        Encoder.load(folder).encode_activations(texts)
    else:
        backbone = Backbone.from_pretrained()
        for _ in backbone.token_states(backbone.windows(texts)):
            pass
    return resident("VmHWM")


if __name__ == "__main__":
    print(measure(sys.argv[1], Path(sys.argv[2])))
