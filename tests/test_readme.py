"""The README runs, prints what it says, is short, and has the same code in each language."""

import re

import pytest

from tests.pages import READMES, blocks_of, play


@pytest.mark.model
def test_the_blocks_of_the_readme_run_and_print_what_they_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert blocks_of(READMES[0])[0].printed is not None

    play(READMES[0], capsys)


def test_the_readme_has_at_most_700_words():
    prose = re.sub(r"```.*?```", "", READMES[0].read_text(), flags=re.DOTALL)

    assert len(prose.split()) <= 700


def test_both_readmes_have_the_same_code_and_links():
    def links(path):
        found = re.findall(r"\]\(([^)]+)\)", path.read_text("utf-8"))
        return [link for link in found if not link.startswith("README")]

    english, chinese = READMES

    assert blocks_of(english) == blocks_of(chinese)
    assert links(english) == links(chinese)
