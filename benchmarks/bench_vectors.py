"""
Measures the exact search among all vectors of one user or session, under filters, and their file.

Good numbers: ``exact_ms`` of 100,000 about the time in which a question is embedded (10 ms);
``load_ms`` of an index file under the time to read the same vectors from a database.

Vectors are mixtures of topics with noise, as texts give; ``--vectors`` takes real ones, which are
mixed to as many as are needed. HNSW stands beside as what was not taken.

    python benchmarks/bench_vectors.py [--quick | --full] [--hnsw] [--vectors FILE.npy]
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from report import print_json

from agentmem.protocols import SearchScope
from agentmem.retrieval.dense.vector_file_format import SavedVectors
from agentmem.retrieval.dense.vector_files import VectorFiles
from agentmem.retrieval.dense.vector_index import FaissIndex, as_unit
from agentmem.retrieval.rows.growable_array import Bools, Float32s
from agentmem.types import Scope

DIMENSION = 384
QUERIES = 30
BEST = 200
SHARES = (1.0, 0.5, 0.1, 0.01)
NOBODY = SearchScope(scope=Scope(namespace="bench", user="one"))


def main() -> None:
    """Measure each size and print a table, then one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 vectors alone")
    parser.add_argument(
        "--full", action="store_true", help="300,000 and 1,000,000 too: takes minutes"
    )
    parser.add_argument("--hnsw", action="store_true", help="measure a graph of the same vectors")
    parser.add_argument("--vectors", type=Path, help="real ones, (n, 384), as numpy saves them")
    options = parser.parse_args()
    sizes = [10_000] if options.quick else [10_000, 100_000]
    sizes += [300_000, 1_000_000] if options.full else []
    base = topics() if options.vectors is None else as_unit(np.load(options.vectors), DIMENSION)
    figures: dict[str, Any] = {}
    for size in sizes:
        figures[str(size)] = measure(base, size, with_hnsw=options.hnsw)
        show(size, figures[str(size)])
    print_json({"vectors": figures})


def topics() -> Float32s:
    """Give 3,000 vectors around 150 topics."""
    random = np.random.default_rng(1)
    centres = random.standard_normal((150, DIMENSION))
    spread = random.standard_normal((3000, DIMENSION))
    return as_unit((centres[random.integers(0, 150, 3000)] + 0.9 * spread).astype("f4"), DIMENSION)


def mixed(base: Float32s, size: int, seed: int) -> Float32s:
    """Give *size* vectors, each between two of *base*, with noise."""
    random = np.random.default_rng(seed)
    result = np.empty((size, DIMENSION), np.float32)
    for start in range(0, size, 50_000):
        num = min(50_000, size - start)
        one, other = (base[random.integers(0, len(base), num)] for _ in range(2))
        share = random.uniform(0, 0.5, (num, 1)).astype(np.float32)
        noise = random.standard_normal((num, DIMENSION), np.float32) * (0.3 / DIMENSION**0.5)
        result[start : start + num] = as_unit((1 - share) * one + share * other + noise, DIMENSION)
    return result


def measure(base: Float32s, size: int, *, with_hnsw: bool) -> dict[str, Any]:
    """Search one size exactly under each filter, and save it."""
    vectors = mixed(base, size, seed=2)
    questions = mixed(base, QUERIES, seed=3)
    index = FaissIndex(DIMENSION)
    index.add(np.arange(size), vectors)
    allowed = [np.random.default_rng(4).random(size) < share for share in SHARES]
    figures: dict[str, Any] = {"exact_ms": []}
    exact = []
    for mask in allowed:
        figures["exact_ms"].append(
            median_ms(lambda one, mask=mask: index.scores(one, mask), questions)
        )
        exact.append([best(index.scores(one, mask)) for one in questions])
    figures["file"] = measure_file(index)
    if with_hnsw:
        figures["hnsw"] = measure_hnsw(vectors, questions, allowed, exact)
    return figures


def measure_hnsw(
    vectors: Float32s, questions: Float32s, allowed: list[Bools], exact: list[list[set[int]]]
) -> dict[str, Any]:
    """Measure a graph that may look at 400 candidates."""
    graph = faiss.IndexHNSWFlat(DIMENSION, 16, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 100
    started = time.perf_counter()
    graph.add(vectors)
    figures: dict[str, Any] = {"build_s": round(time.perf_counter() - started, 1)}
    figures |= {"ms": [], "recall_at_200": []}
    for mask, expected in zip(allowed, exact, strict=True):
        bits = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
        how = faiss.SearchParametersHNSW(sel=bits, efSearch=400)

        def search(one: Float32s, how: Any = how) -> Any:
            return graph.search(one[None], BEST, params=how)[1][0]

        figures["ms"].append(median_ms(search, questions))
        found = [set(search(one).tolist()) - {-1} for one in questions]
        figures["recall_at_200"].append(recall(found, expected))
    return figures


def measure_file(index: FaissIndex) -> dict[str, float]:
    """Save and load all of it."""
    folder = Path(tempfile.mkdtemp(prefix="bench-vectors-"))
    files = VectorFiles(folder, "bench")
    ids = index.rows.copy()
    try:
        started = time.perf_counter()
        with files.turn():
            files.save(
                NOBODY,
                SavedVectors(
                    message_ids=ids, content_hashes=ids.astype("u8"), vectors=index.vectors()
                ),
            )
        saved = time.perf_counter()
        loaded = files.load(NOBODY)
        assert loaded is not None, "what was saved is not there"
        FaissIndex(DIMENSION).add(ids, loaded[1].vectors)
        done = time.perf_counter()
        num_bytes = files.num_bytes(NOBODY)
    finally:
        shutil.rmtree(folder)
    assert num_bytes is not None, "what was saved is not there"
    return {
        "save_ms": round(1000 * (saved - started), 1),
        "load_ms": round(1000 * (done - saved), 1),
        "megabytes": round(num_bytes / 1e6, 1),
    }


def best(scores: Float32s) -> set[int]:
    """Give the rows of the best scores."""
    num = min(BEST, int(np.isfinite(scores).sum()))
    return set(np.argpartition(-np.nan_to_num(scores, nan=-np.inf), num - 1)[:num].tolist())


def recall(found: list[set[int]], expected: list[set[int]]) -> float:
    """Give the share of what was expected that was found."""
    shares = [len(one & other) / len(other) for one, other in zip(found, expected, strict=True)]
    return round(statistics.fmean(shares), 3)


def median_ms(search: Callable[[Float32s], Any], questions: Float32s) -> float:
    """Give the median time of one search."""
    search(questions[0])
    times = []
    for one in questions:
        started = time.perf_counter()
        search(one)
        times.append(time.perf_counter() - started)
    return round(1000 * statistics.median(times), 2)


def show(size: int, figures: dict[str, Any]) -> None:
    """Print one size for people."""
    print(f"{size:,} vectors; file {figures['file']}")
    print(f"  {'may be found':20}" + "".join(f"{share:>10.0%}" for share in SHARES))
    print(f"  {'exact, ms':20}" + "".join(f"{value:>10}" for value in figures["exact_ms"]))
    for name, values in figures.get("hnsw", {}).items():
        print(f"  hnsw {name:15}" + "".join(f"{v:>10}" for v in np.atleast_1d(values).tolist()))


if __name__ == "__main__":
    main()
