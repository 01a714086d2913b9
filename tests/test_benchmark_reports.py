"""What each benchmark ends with."""

import json

import pytest
from report import print_json

pytestmark = pytest.mark.slow


def test_a_benchmark_ends_with_one_json_line_of_figures_and_where_they_were_measured(capsys):
    print_json({"p95_ms": 1.5})

    report = json.loads(capsys.readouterr().out)
    assert report["p95_ms"] == 1.5
    assert report["machine"]["cores"] > 0
    assert {"python", "agentmem-window", "torch", "transformers"} == set(report["versions"])
    assert report["commit"]
