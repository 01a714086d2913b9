"""The pages of docs/ run, print what they say, and pass the type checker; so do the READMEs."""

import re
import subprocess
import sys

import pytest

from tests.pages import DOCS, PAGES, READMES, ROOT, blocks_of, name_of, play, prelude_of
from tests.test_repo_shape import WORDS

NOT_RUN = {"docs/how-to/postgresql.md": 1}
"""Blocks that need what a test does not have; each is marked with its reason in the page."""

WITH_CODE = [path for path in PAGES if blocks_of(path)]


def marked(path):
    needs_weights = any("LocalModel.load(" in block.code for block in blocks_of(path))
    return pytest.param(path, id=name_of(path), marks=[pytest.mark.model] if needs_weights else [])


@pytest.mark.parametrize("path", [marked(path) for path in WITH_CODE])
def test_the_blocks_of_a_page_run_and_print_what_they_say(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    play(path, capsys)


def test_few_blocks_are_not_run():
    counts = {name_of(path): sum(not block.is_run for block in blocks_of(path)) for path in PAGES}

    assert {name: count for name, count in counts.items() if count} == NOT_RUN


@pytest.mark.slow
def test_all_blocks_pass_the_type_checker(tmp_path):
    for path in (*WITH_CODE, *READMES):
        code = [block.code for block in (*prelude_of(path), *blocks_of(path))]
        name = re.sub(r"\W+", "_", name_of(path))
        (tmp_path / f"{name}.py").write_text("\n\n".join(code), "utf-8")
    command = [sys.executable, "-m", "mypy"]
    cache = ("--cache-dir", str(ROOT / ".mypy_cache"))

    done = subprocess.run(
        [*command, *cache, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_pages_link_to_files_that_exist():
    broken = [
        (name_of(path), link)
        for path in (*PAGES, *READMES)
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text("utf-8"))
        if not (path.parent / link).exists()
    ]

    assert broken == []


def test_every_page_is_in_the_table_of_contents():
    listed = {DOCS / "index.md"}
    for index in DOCS.rglob("index.md"):
        tree = re.search(r"```{toctree}\n(.*?)```", index.read_text(), re.DOTALL)[1]
        names = [line for line in tree.splitlines() if line and not line.startswith(":")]
        listed |= {index.parent / f"{name}.md" for name in names}

    assert sorted(listed) == PAGES


@pytest.mark.parametrize("path", [*PAGES, READMES[0], ROOT / "ARCHITECTURE.md"], ids=name_of)
def test_pages_use_the_words_of_the_trade(path):
    assert [match.group() for match in WORDS.finditer(path.read_text("utf-8"))] == []
