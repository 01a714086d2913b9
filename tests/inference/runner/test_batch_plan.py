"""What a run takes, and which rows are padded to one length."""

from agentmem.inference.runner.batch_plan import (
    MAX_PAD_SLOTS,
    SPARE_SLOTS,
    Room,
    choose_room,
    split_by_length,
)
from agentmem.inference.runner.memory_plan import plan_memory


def room(num_rows, limit, *, is_short=False):
    return choose_room(num_rows, 100, block_size=16, limit=limit, is_short=is_short)


def test_a_run_has_room_for_rows_and_tokens_to_come_where_there_is_memory():
    assert room(3, 10_000) == Room(rows=4, slots=116 + SPARE_SLOTS)
    assert room(5, 10_000) == Room(rows=8, slots=116 + SPARE_SLOTS)
    assert room(1, 10_000) == Room(rows=1, slots=116 + SPARE_SLOTS)


def test_a_run_takes_what_it_needs_where_others_want_memory_too():
    assert room(3, 10_000, is_short=True) == Room(rows=3, slots=132)
    assert room(3, 3 * 116, is_short=True) == Room(rows=3, slots=116)
    assert room(3, 3 * 116 - 1, is_short=True) is None


def test_rows_of_about_one_length_are_padded_together():
    assert split_by_length([90, 50, 100]) == [[1, 0, 2]]


def test_a_row_goes_alone_where_padding_costs_more_than_a_pass():
    short, long = 100, 100 + MAX_PAD_SLOTS
    assert split_by_length([short, long]) == [[0, 1]]
    assert split_by_length([short, long + 1]) == [[0], [1]]


def test_buffers_take_half_of_the_memory_and_no_more_than_they_can_use():
    plan = {"block_bytes": 10, "block_size": 16, "max_num_seqs": 4}

    half = plan_memory(1000, longest=10_000, **plan)
    little = plan_memory(1_000_000, longest=16, **plan)

    assert (half.num_blocks, half.run_slots) == (49, 50 * 16)
    useful = 4 * (2 * 16 + 16 + SPARE_SLOTS)
    assert little.run_slots == useful
    assert little.num_blocks == 100_000 - useful // 16 - 1
