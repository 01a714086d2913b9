"""Each column of each table may be damaged: errors are the package's, and others are unharmed."""

import pytest
from corruption_calls import final_calls, hurt_calls, missing, shared_calls
from corruption_databases import Sqlite, damages
from corruption_sweep import Sweep

from agentmem import Memory

DAMAGES = [
    ("message", "parts", "deep"),
    ("branch", "parent_id", "nowhere"),
    ("event", "link", "number"),
    ("summary", "key", "not utf-8"),
]
"""The whole sweep has each column of each table, in each way that fits its type."""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return Sweep(Sqlite(tmp_path_factory.mktemp("sweep")), is_quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=" ".join)
def test_a_damaged_column_is_no_raw_error_and_harms_no_other_session(sweep, damage):
    name, column, kind = damage
    table = sweep.tables[name]
    row = sweep.database.rows(table)[-1]
    num_before = sweep.counts["damages"]
    sweep.damage(table, column, row, kind, dict(damages(table.columns[column]))[kind])
    assert sweep.counts["damages"] == num_before + 1
    assert sweep.examples == []


def test_the_sweep_has_every_table_of_a_database(sweep):
    assert set(sweep.database.tables()) == set(sweep.tables)
    assert all(sweep.database.rows(table) for table in sweep.tables.values())


def test_the_sweep_has_every_public_call(tmp_path):
    with Memory.open("sqlite://") as memory:
        calls = (hurt_calls(memory, "", tmp_path), shared_calls(memory), final_calls(memory))
    assert missing({name for some in calls for name in some}) == []
