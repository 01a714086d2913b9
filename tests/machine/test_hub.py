import pytest
from huggingface_hub import constants

from agentmem.errors import ModelLoadError
from agentmem.machine import hub
from agentmem.machine.hub import files_of_wheel, find_in_hub


@pytest.fixture
def cached(monkeypatch, tmp_path):
    """Return the folder of the model `some/model` in a hub's cache, and go offline."""
    model = tmp_path / "models--some--model"
    folder = model / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc")
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


def test_a_cached_model_is_found_without_a_network(cached):
    assert find_in_hub("some/model", ["*.json"]) == cached


@pytest.mark.usefixtures("cached")
def test_a_model_that_is_not_cached_is_none_without_a_network():
    downloads = []

    found = find_in_hub("other/model", ["*.json"], on_download=lambda: downloads.append(1))

    assert found is None
    assert downloads == []


@pytest.mark.usefixtures("cached")
def test_a_download_is_announced_and_its_failure_is_one_line(monkeypatch):
    downloads = []

    def snapshot(_, *, local_files_only, **__):
        if local_files_only:
            raise hub.LocalEntryNotFoundError("not cached")
        raise OSError("no space\nleft")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "hub_answers", lambda: True)
    monkeypatch.setattr(hub, "snapshot_download", snapshot)

    with pytest.raises(ModelLoadError, match=r"'other/model' from the hub: no space$"):
        find_in_hub("other/model", [], on_download=lambda: downloads.append(1))
    assert downloads == [1]


def test_a_wheel_that_is_not_installed_has_no_files():
    assert files_of_wheel("no-such-wheel") == []
    assert any(file.name == "METADATA" for file in files_of_wheel("pytest"))
