"""Writers that are killed or meet a full disk, and readers beside them.

``python -m tests.faults`` is the long run; ``tests/unit/test_faults.py`` a short one.
"""
