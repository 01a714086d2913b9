"""What the words of a text are."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentmem.retrieval.text.analyzer import Analyzer, unspaced_share

ANALYZER = Analyzer()


def terms(text):
    return ANALYZER.passage(text).terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She was running to the cats' houses", ["run", "cat", "hous"]),
        ("Don't you self-check?", ["self", "check"]),
        ("Die Katzen liefen durch die Häuser und wir sahen sie", ["katz", "lief", "haus", "sah"]),
        ("Nous avons mangé dans les restaurants de la ville", ["mang", "restaur", "vill"]),
        ("Кошки живут в старых домах", ["кошк", "живут", "стар", "дом"]),
        ("", []),
        ("?! ... --", []),
    ],
)
def test_words_are_stemmed_and_stop_words_left_out(text, expected):
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("due 2023-05-08", "2023-05-08"),
        ("at 10:30", "10:30"),
        ("costs 3.14", "3.14"),
        ("ERR-4042 again", "err-4042"),
        ("call get_user_name()", "get_user_name"),
        ("see src/main.py", "src/main.py"),
        ("mail a.b@c.org", "a.b@c.org"),
        ("written in C++", "c++"),
        ("written in C#", "c#"),
        ("getUserName fails", "getusernam"),
        ("v1.2.3 is out", "v1.2.3"),
    ],
)
def test_what_is_spelled_like_code_is_kept_whole(text, whole):
    assert whole in terms(text)
    assert (whole,) in ANALYZER.query(text)


def test_the_parts_of_a_whole_are_words_too():
    assert {"get", "user", "name"} <= set(terms("getUserName"))
    assert {"4042"} <= set(terms("ERR-4042"))
    assert {"2023", "05"} <= set(terms("2023-05"))


def test_scripts_without_spaces_are_cut_into_pairs():
    assert terms("我家的猫") == ["我", "家", "的", "猫", "我家", "家的", "的猫"]
    assert ANALYZER.query("橘猫") == [("橘猫",), ("橘",), ("猫",)]
    assert [one for (one,) in ANALYZER.query("猫什么时候吃") if len(one) == 1] == ["猫", "吃"]
    assert ANALYZER.query("猫") == [("猫",)]
    assert ("猫",) in ANALYZER.query("猫叫什么")


def test_scripts_may_be_mixed_without_spaces():
    assert terms("用Python写的API") == ["python", "api", "用", "写", "的", "写的"]


def test_full_width_and_half_width_are_the_same():
    assert terms("ＡＰＩ１２３") == terms("API123")  # noqa: RUF001


def test_a_question_stands_for_what_it_is_in_the_languages_of_the_texts():
    assert ANALYZER.query("Häuser")[0][:2] == ("hauser", "häuser")
    assert {"hauser", "häuser", "haus"} <= set(ANALYZER.query("Häuser", ["english", "german"])[0])
    # Where its own words tell, its language comes first.
    (only,) = ANALYZER.query("Wo sind die Häuser?", ["english"])
    assert only[0] == "haus"
    assert {"hauser", "häuser"} <= set(only)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("When did we go to the museum?", "english"),
        ("Wann sind wir in das Museum gegangen?", "german"),
        ("Quand est-ce que nous sommes allés au musée?", "french"),
        ("Cuando fuimos al museo con los niños?", "spanish"),
        ("Quando siamo andati al museo con gli amici?", "italian"),
        ("Wanneer zijn we naar het museum gegaan?", "dutch"),
        ("Quando é que nós fomos ao museu com os amigos?", "portuguese"),
        ("Hotel Lisboa", None),
        ("猫", None),
    ],
)
def test_stop_words_tell_the_language(text, language):
    assert ANALYZER.passage(text).language == language


def test_share_of_scripts_without_spaces():
    assert unspaced_share("我喜欢猫") == 1
    assert unspaced_share("cats, 123") == 0
    assert unspaced_share("123 ?") == 0
    assert unspaced_share("猫猫 ab") == 0.5


@given(st.text(max_size=200))
def test_any_text_has_words(text):
    words = ANALYZER.passage(text)
    assert all(term and term.strip() == term for term in words.terms)
    assert all(same for same in ANALYZER.query(text, ["english", "german"]))
    assert 0 <= unspaced_share(text) <= 1


@given(st.text(alphabet=st.characters(categories=["Ll", "Lo"]), min_size=1, max_size=12))
@example("a")
@example("ª")
@example("я")
def test_a_text_is_found_by_itself_unless_it_is_stop_words_alone(text):
    asked = ANALYZER.query(text)
    found = set(terms(text))
    # A message such as "it is" keeps no terms: words that every message has would bury the others.
    assert not found or all(found & set(same) for same in asked)


def test_threads_stem_alike():
    texts = [f"running houses number {i} cats" for i in range(200)] * 4
    alone = [terms(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(Analyzer().passage, texts)) == [
            ANALYZER.passage(text) for text in texts
        ]
    assert [terms(text) for text in texts] == alone
