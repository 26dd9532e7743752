"""The papers' analyses, over sparse vectors alone: one module each, results as plain values."""
