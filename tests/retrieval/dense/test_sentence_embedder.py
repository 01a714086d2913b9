"""The embedder on sentence-transformers, on the real all-MiniLM-L6-v2."""

import json
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from agentmem.errors import ConfigError, ModelLoadError
from agentmem.retrieval.dense.find_embedder import DEFAULT_EMBEDDER, find_embedder

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def load():
    from agentmem.retrieval.dense.sentence_embedder import SentenceEmbedder  # noqa: PLC0415 - loads torch

    return SentenceEmbedder.load


@pytest.fixture(scope="module")
def embedder(load):
    return load(device="cpu")


@pytest.fixture
def folder(tmp_path):
    """A copy of the model's folder, to be spoiled."""
    copy = tmp_path / "model"
    shutil.copytree(find_embedder(DEFAULT_EMBEDDER), copy)
    return copy


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_args, **_options):
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_close_texts_have_close_vectors(embedder):
    passages = embedder.embed_passages(["We adopted a kitten.", "The train leaves at ten."])
    assert passages.shape == (2, embedder.dimension)
    assert passages.dtype == np.float32
    assert np.linalg.norm(passages, axis=1) == pytest.approx([1, 1], abs=1e-5)
    question = embedder.embed_query("Which pet did you get?")
    assert question.shape == (embedder.dimension,)
    assert passages[0] @ question > passages[1] @ question + 0.2


def test_vectors_stand_in_the_order_of_the_texts(embedder):
    texts = [f"number {i} " * (1 + i % 7) for i in range(40)]
    together = embedder.embed_passages(texts)
    alone = np.concatenate([embedder.embed_passages([text]) for text in texts])
    assert together == pytest.approx(alone, abs=1e-5)


def test_a_model_of_english_does_not_read_chinese(embedder):
    assert not embedder.reads_unspaced


def test_no_text_is_no_vector(embedder):
    assert embedder.embed_passages([]).shape == (0, embedder.dimension)


def test_threads_may_share_it(embedder):
    texts = [f"message {i}" for i in range(24)]
    alone = [embedder.embed_query(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        passages = pool.submit(embedder.embed_passages, texts * 2)
        shared = list(pool.map(embedder.embed_query, texts))
        assert passages.result()[0] == pytest.approx(passages.result()[24], abs=1e-5)
    assert np.array(shared) == pytest.approx(np.array(alone), abs=1e-5)


@pytest.mark.parametrize(
    "text", ["word " * 900, "a" * 3000, "猫在睡觉" * 300, " \n" * 400 + "end", "hi", "x" * 239]
)
def test_pieces_cover_a_text_and_overlap(embedder, text):
    pieces = embedder.split(text)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == len(text) - 1
    for before, after in pairwise(pieces):
        assert before[0] < after[0] <= before[1] + 1
        assert before[1] < after[1]


def test_nothing_of_a_piece_is_cut_off(embedder):
    limit = embedder._model.max_seq_length
    text = "Antidisestablishmentarianism costs 3.14 EUR! " * 80
    for first, last in embedder.split(text):
        ids = embedder._model.tokenizer(f"A long name: {text[first : last + 1]}", verbose=False)
        assert len(ids["input_ids"]) <= limit


@pytest.mark.usefixtures("no_network")
def test_loads_without_a_network_and_at_once(load, embedder):
    started = time.monotonic()
    assert load(device="cpu").fingerprint == embedder.fingerprint
    with pytest.raises(ModelLoadError, match="no embedding model 'some/where'"):
        load("some/where")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("path", ["/no/such/folder", "./missing", "../missing", "~/missing"])
def test_a_path_without_a_folder_is_never_looked_up_in_the_hub(load, monkeypatch, path):
    asked = []
    monkeypatch.setattr(
        "agentmem.retrieval.dense.find_embedder.find_in_hub", lambda *_, **__: asked.append(path)
    )
    with pytest.raises(ModelLoadError, match=f"no embedding model '{path}': there is no folder /"):
        load(path)
    assert not asked


def test_the_fingerprint_is_that_of_the_content(load, embedder, folder):
    assert load(str(folder), device="cpu").fingerprint == embedder.fingerprint
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 128}))
    shorter = load(str(folder), device="cpu")
    assert shorter.fingerprint != embedder.fingerprint
    assert len(shorter.split("word " * 200)) > len(embedder.split("word " * 200))


def test_prompts_are_put_before_texts_and_named(load, embedder, folder):
    settings = json.dumps({"prompts": {"query": "query: ", "document": "passage: "}})
    (folder / "config_sentence_transformers.json").write_text(settings)
    prompted = load(str(folder), device="cpu")
    assert prompted.fingerprint != embedder.fingerprint
    expected = embedder.embed_query("query: a cat")
    assert prompted.embed_query("a cat") == pytest.approx(expected, abs=1e-5)
    (passage,) = embedder.embed_passages(["passage: a cat"])
    assert prompted.embed_passages(["a cat"])[0] == pytest.approx(passage, abs=1e-5)


def test_prompts_can_be_given(load, embedder):
    given = load(device="cpu", prompts={"query": "query: "})
    assert given.fingerprint != embedder.fingerprint
    expected = embedder.embed_query("query: a cat")
    assert given.embed_query("a cat") == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_damaged_files_are_a_typed_error(load, folder, name):
    (folder / name).write_text("{not")
    if name == "tokenizer.json":
        (folder / "vocab.txt").unlink()
    with pytest.raises(ModelLoadError, match="no embedding model can be loaded"):
        load(str(folder), device="cpu")


def test_missing_files_are_a_typed_error(load, folder, tmp_path):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"no \*\.safetensors"):
        load(str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelLoadError, match=r"no config\.json"):
        load(str(tmp_path / "empty"))


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_no_such_device(load, device):
    with pytest.raises(ConfigError):
        load(device=device)
