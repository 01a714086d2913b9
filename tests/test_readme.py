"""Every Python block of the README runs, in order, in one namespace."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
PRINTED = re.findall(r"```text\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.model
def test_the_blocks_of_the_readme_run_and_the_first_prints_what_it_says(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    space = {}
    printed = []
    for block in BLOCKS:
        exec(compile(block, str(README), "exec"), space)  # noqa: S102 - our own page
        printed.append(capsys.readouterr().out)
    space["memory"].close()
    space["model"].close()

    assert printed[0].splitlines() == PRINTED[0].splitlines()
