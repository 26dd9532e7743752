"""MaxScore of PISA on the postings of a folder: a script for an environment with pyterrier-pisa.

``benchmarks.pruning --pisa PYTHON`` writes the folder, runs this, and reads what it prints.
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np


def write_index(folder, df, documents, impacts, num_documents):
    """Write postings as PISA's builder does, dimension by dimension.

    ``df`` [V]; ``documents`` and ``impacts`` [postings], integers.
    """
    from pyterrier_pisa import _pisathon

    (kept,) = np.nonzero(df)
    ends = np.cumsum(df)
    with (folder / "inv.docs").open("wb") as lists, (folder / "inv.freqs").open("wb") as freqs:
        np.array([1, num_documents], np.uint32).tofile(lists)
        for dimension in kept.tolist():
            span = slice(ends[dimension] - df[dimension], ends[dimension])
            for file, values in ((lists, documents), (freqs, impacts)):
                np.array([df[dimension]], np.uint32).tofile(file)
                values[span].astype(np.uint32).tofile(file)
    lengths = np.bincount(documents, weights=impacts, minlength=num_documents)
    np.array([num_documents, *lengths], np.uint32).tofile(folder / "inv.sizes")
    names = {"terms": kept, "documents": range(num_documents)}
    for (name, numbers), lexicon in zip(names.items(), ("termlex", "doclex"), strict=True):
        text = "".join(f"{number:09d}\n" for number in numbers)
        (folder / f"fwd.{name}").write_text(text)
        _pisathon.build_binlex(str(folder / f"fwd.{name}"), str(folder / f"fwd.{lexicon}"))
    about = {"type": "sparse_index", "format": "pisa", "stemmer": "none"}
    (folder / "pt_meta.json").write_text(json.dumps(about))


def main(path, rounds, top_k):
    """Print the seconds of each query in each round [rounds, n], and the scores found, as JSON."""
    from pyterrier_pisa import PisaIndex, _pisathon

    folder = Path(path)
    loaded = {file.stem: np.load(file, mmap_mode="r") for file in folder.glob("*.npy")}
    df, documents, impacts = (loaded[name] for name in ("df", "documents", "impacts"))
    write_index(folder, df, documents, impacts, int(loaded["num_documents"]))
    searcher = PisaIndex(str(folder), stops="none").quantized(num_results=top_k, threads=1)
    starts = loaded["query_indptr"]
    queries = [
        [(0, {f"{d:09d}": float(w) for d, w in zip(*pair, strict=True)})]
        for pair in (
            (loaded["query_indices"][a:b].tolist(), loaded["query_data"][a:b].tolist())
            for a, b in pairwise(starts)
        )
    ]
    found = [np.empty(top_k, kind) for kind in (np.int32, object, np.int32, np.float32)]
    names = ("result_qidxs", "result_docnos", "result_ranks", "result_scores")
    options = {"k": top_k, "threads": 1, "query_weighted": 1, "pretokenised": True}
    options |= dict(zip(names, found, strict=True))
    seconds, scores = [], []
    for _ in range(rounds + 1):  # the first is not counted
        times = []
        for query in queries:
            start = time.process_time()
            size = _pisathon.retrieve(searcher._ctxt, "maxscore", query, **options)
            times.append(time.process_time() - start)
            if not seconds:
                scores.append(found[3][:size].tolist())
        seconds.append(times)
    print(json.dumps({"seconds": seconds[1:], "scores": scores}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
