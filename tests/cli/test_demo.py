import re

import pytest

from tests.cli.test_app import agentmem


@pytest.mark.model
@pytest.mark.timeout(600)
def test_the_demo_plays_to_its_end_and_its_account_balances(tmp_path):
    url = f"sqlite:///{tmp_path / 'demo.db'}"

    done = agentmem("demo", "--database", url)

    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "the prompt is the same bytes" in said
    assert len(re.findall(r"handed back: .*[1-9]\d* KV blocks of scratch", said)) == 2
    assert re.search(r"each message shown or on record +│ in all \d+ logged prompts", said)
    assert len(re.findall(r"pin '\w+' in the last prompt +│ byte for byte", said)) == 2
    assert len(re.findall(r"truncations [1-9]", said)) >= 4
    free, cached, in_use, total = map(
        int, re.search(r"(\d+) free \+ (\d+) cached \+ (\d+) in use = (\d+)", said).groups()
    )
    assert free + cached + in_use == total
    assert in_use == 0
