"""Each column of each table may be damaged: errors are the package's, and others are unharmed."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from corruption_sweep import Sweep, damages, rows_of

from agentmem.store.base import Base

KINDS = ("huge", "cut", "words", "odd")
"""One kind of damage for each type of column; the whole sweep has them all."""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return Sweep(tmp_path_factory.mktemp("sweep"))


@pytest.mark.parametrize("name", ["message", "branch", "session", "assembly"])
def test_a_damaged_column_is_no_raw_error_and_harms_no_other_session(sweep, name):
    table = Base.metadata.tables[name]
    row = rows_of(sweep.clean, table)[-1]
    for column in table.columns:
        for kind, value in damages(column):
            if kind in KINDS:
                sweep.damage(table, column.name, row, kind, value)
    assert sweep.by_table[name]["damages"] > 5
    assert sweep.examples == []
