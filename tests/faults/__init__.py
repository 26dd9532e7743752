"""Commands that lose their power, meet I/O errors or are killed, and readers beside them.

``python -m tests.faults`` is the long run; ``tests/unit/test_faults.py`` a short one.
"""
