from agentmem.inference.chat.splice import splice


def test_contents_that_stand_as_they_are_are_named():
    parts = splice("<a>one<b>two<c>", "<a>#0#<b>#2#<c>", ["one", "x", "two"], "#")

    assert parts == ["<a>", 0, "<b>", 2, "<c>"]


def test_a_content_that_was_trimmed_stays_in_its_text():
    contents = ["\n one ", " two \n", "three"]

    parts = splice("<a>one<b> two <c>three", "<a>#0#<b>#1#<c>#2#", contents, "#")

    assert parts == ["<a>one<b> two <c>", 2, ""]


def test_a_space_that_is_trimmed_and_written_again_is_the_content_s():
    contents = [" one", " two ", "three"]

    parts = splice("<a> one<b> two<c> three", "<a> #0#<b> #1#<c> #2#", contents, "#")

    assert parts == ["<a>", 0, "<b> two<c> ", 2, ""]


def test_a_space_that_is_trimmed_and_not_written_again_takes_nothing_from_before_it():
    assert splice("<a>one<b>", "<a>#0#<b>", [" one"], "#") == ["<a>one<b>"]


def test_nothing_is_split_where_the_template_looks_into_what_is_said():
    full = "<a>ONE<b>two"

    assert splice(full, "<a>#0#<b>#1#", ["one", "two"], "#") == [full]
    assert splice(full, "<a>#1#", ["one", "two"], "#") == [full]
    assert splice("<a>one<b>", "<a>#0#", ["one"], "#") == ["<a>one<b>"]
