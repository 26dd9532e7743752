"""Model cards for the Hugging Face Hub."""

from __future__ import annotations

from lexicept.encoding.hub import is_name
from lexicept.neural.encoders.encoder import Encoder

_TEMPLATE = """---
library_name: sentence-transformers
{base}tags:
- sparse-encoder
- learned-sparse-retrieval
- lexicept
---

# {title}

A learned sparse encoder, made with lexicept: {origin}, {layers} blocks, then a {head} of
{size:,} dimensions with {pooling} pooling.

```python
from lexicept.neural.encoders.encoder import Encoder

encoder = Encoder.load("{place}")
queries = encoder.encode_query(["a question"])
documents = encoder.encode_document(["a document"])
```

`SparseEncoder("{place}", trust_remote_code=True)` of sentence-transformers loads it too, where
lexicept is installed. `lexicept build documents/ --out index --model {place}` indexes with it.
"""


def make_card(encoder: Encoder, title: str, origin: str) -> str:
    """Return a card in Markdown, with the hub's front matter.

    Args:
        origin: the model's base: a hub name, which is linked, or a folder.
    """
    backbone, head = encoder.backbone, encoder.head
    return _TEMPLATE.format(
        base=f"base_model: {origin}\n" if is_name(origin) else "",
        title=title,
        origin=origin,
        layers=backbone.num_layers,
        head=type(head).__name__,
        size=head.size,
        pooling=head.settings.pooling,
        place="path/to/this/folder",
    )
