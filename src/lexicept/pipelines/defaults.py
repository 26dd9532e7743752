"""Names of models that are defaults, for modules that do not import torch."""

BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"
"""``models.loading.DEFAULT_BACKBONE``."""

MINI = "lexicept-mini"
"""``vectorizers.concepts.MINI``, the concept model in the package."""
