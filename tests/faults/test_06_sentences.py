"""What a summary quotes is never half of a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.context import ExtractiveSummarizer
from agentmem.protocols import Passage
from agentmem.types import Role
from agentmem.types.sentences import OMITTED, split_sentences

BACKUPS = [f"backup-{number}" for number in range(30)]
LISTED = ", ".join(BACKUPS)


def count(text):
    return len(text.split())


def summarize(*texts, max_tokens=60, role=Role.USER, count=count):
    passages = [Passage(position=n, role=role, text=text) for n, text in enumerate(texts, start=1)]
    return ExtractiveSummarizer().summarize(passages, max_tokens=max_tokens, count=count)


def quoted(summary):
    """All excerpts of a summary, without their labels."""
    return [
        excerpt.strip().strip('"')
        for line in summary.split("\n")
        if line
        for excerpt in line.split(": ", 1)[1].split(OMITTED)
    ]


TURNED = [
    f"Please delete the backups in {LISTED} but never the folder backup-7 which has the accounts",
    f"Bitte lösche die Ordner {LISTED}, aber auf keinen Fall den Ordner backup-7",
    f"Die Ordner {LISTED} darfst du auf gar keinen Fall löschen",
    f"Borra las carpetas {LISTED} excepto backup-7 que no debes tocar nunca",
    f"Supprime les dossiers {LISTED} sauf backup-7 qu'il ne faut jamais toucher",
    f"Удали папки {LISTED}, но никогда не трогай backup-7",
    f"请删除文件夹{'、'.join(BACKUPS)}\uff0c但是千万不要删除backup-7\uff0c里面有账目",
    f"フォルダ{'、'.join(BACKUPS)}を削除してください、ただしbackup-7は絶対に削除しないでください",
    f"احذف المجلدات {LISTED} لكن لا تحذف backup-7 أبدا",
    f"फ़ोल्डर {LISTED} हटा दो लेकिन backup-7 को कभी मत हटाना",
    f"{LISTED} klasörlerini sil ama backup-7 klasörünü asla silme",
    f"폴더 {LISTED} 삭제하되 backup-7 은 절대 삭제하지 마세요",
    "Please do not\ndelete the folders " + LISTED.replace(", ", ",\n"),
    "Delete these:\n" + "\n".join(f"- {one}" for one in BACKUPS) + "\nbut never:\n- backup-7",
    f'Tell them "Delete {LISTED}. Now." and then say that they must never do it',
]


@pytest.mark.parametrize("text", TURNED)
@pytest.mark.parametrize("max_tokens", [24, 60, 200])
def test_a_long_sentence_is_quoted_whole_or_not_at_all(text, max_tokens):
    whole = " ".join(text.split())

    made = summarize(text, "We must also water the flowers.", max_tokens=max_tokens)

    assert set(quoted(made)) <= {whole, "We must also water the flowers."}
    assert "flowers" in made


def test_a_long_sentence_is_quoted_where_there_is_room():
    made = summarize(TURNED[0], max_tokens=200)

    assert made == f"[1] user: {TURNED[0]}"


@pytest.mark.parametrize(
    "text",
    [
        "Ask Dr. Smith at St. Mary's about Mr. J. R. Brown and Prof. Jones.",
        "Bring fruit, e.g. Apples or i.e. Pears, etc. Never nuts.",
        "Das gilt z.B. Für Hamburg, d.h. Nicht für Berlin, bzw. Bremen.",
        "In Roe v. Wade, No. 70, the court said so.",
        "It costs approx. 3.50 EUR, vs. 4,000.75 in Jan. and 5 in Dec. last year.",
        "Wait... Never do that.",
        "So\u2026 Never do that.",
        "Use v. 2.3.1 or v2.4. Beta and not Python 3.11.7 for it.",
        "See https://a.example/b.html?q=1.2!x#c.d and mail a.b@c.example for it.",
        "Am 3. Mai und am 14. Juli darfst du nicht kommen.",
        "The U.S. Army and the E.U. Council met at 5 p.m. Monday.",
        'He said "Delete it. Now." and left.',
        "(See p. 5. It is short.) and go on.",
        "\u4ed6\u8bf4\uff1a\u201c\u4e0d\u8981\u5220\u9664\u3002\u201d\u7136\u540e\u8d70\u4e86\u3002",
        "\u300c\u6d88\u305b\u3002\u4eca\u3059\u3050\u3002\u300d\u3068\u8a00\u3046\u306a\u3002",
        "Call tel. 030 or see fig. 4 and eq. 7 below.",
        "Smith et al. Found cf. Jones that it is not so.",
        "Die Nr. 5 in der Str. 7 ist ggf. Frei.",
        "\u0422.\u0435. \u041d\u0435 \u0443\u0434\u0430\u043b\u044f\u0439 \u0443\u043b. \u041c.",
    ],
)
def test_what_only_looks_like_an_end_ends_no_sentence(text):
    assert split_sentences(text) == [text]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One day. Two days! Three days? yes. Four.", 5),
        ("we pay 500. then we go.", 2),
        ("\u9884\u7b97\u662f500\u6b27\u5143\u3002\u5929\u6c14\u597d\uff01\u662f\u5417\uff1f", 3),
        ("\u0627\u0644\u0633\u0639\u0631 92\u061f \u0646\u0639\u0645.", 2),
        ("\u092f\u0939 \u0939\u0948\u0964 \u0935\u0939 \u0939\u0948\u0964", 2),
        ("He said no way. (It was late.) We left.", 3),
        ("first line\n\nsecond line", 2),
        ("# Title\nText of it.", 2),
        ("It ends.\nNext line.", 2),
        ("| a | b |\n| c | d |", 2),
        ("", 0),
        (" \n\u2028 ", 0),
    ],
)
def test_sentences_end_where_they_end(text, parts):
    assert len(split_sentences(text)) == parts


@pytest.mark.parametrize(
    "text",
    [
        "Please do not\ndelete the accounts of Bob",
        "Bitte lösche auf gar keinen Fall jemals die\nKonten von Bob",
        "Never pay Bob,\nAnna or Carl",
        "Delete:\n- a\n- b\n- c",
        "Never touch these\uff1a\n1. accounts\n2. letters",
    ],
)
def test_wrapped_lines_and_lists_stay_together(text):
    assert split_sentences(text) == [" ".join(text.split())]


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466" * 200,
        "https://a.example/" + "a" * 600 + "?order=778899",
        "e\u0301\u0323" * 400,
        "\u0e44\u0e21\u0e48\u0e25\u0e1a" * 200,
        "\u4e0d\u8981\u5220\u9664" * 200,
        "\U0001f1f5\U0001f1f9" * 300,
    ],
)
def test_nothing_is_cut_within_a_character_or_an_address(text):
    made = summarize(text, "We pay 92 EUR.", max_tokens=300, count=len)

    assert quoted(made) == ["We pay 92 EUR."]


def test_what_was_left_out_between_two_sentences_of_a_message_is_marked():
    small = "Oh well so it goes with all of these little things."
    text = f"We must pay 92 EUR. {small} We must pay 95 EUR to Bob. We must go at 9."

    made = summarize(text, max_tokens=18)

    assert made == f"[1] user: We must pay 92 EUR. {OMITTED} We must go at 9."
    again = summarize(made.split(": ", 1)[1], max_tokens=18)
    assert again == made, "the mark stays where it is quoted again"


def test_a_denial_is_no_copy_of_what_it_denies():
    made = summarize("We go on 5 May.", "We do go, no, on 5 May.", max_tokens=40)

    assert len(made.split("\n")) == 2


PIECES = st.one_of(
    st.sampled_from(["We pay", "never", "Dr.", "e.g.", "3.5", "...", "12.", "A", "b", "[...]"]),
    st.sampled_from(["https://a.b/c?d", "\U0001f468\u200d\U0001f469", "e\u0301", "\u4e0d"]),
    st.sampled_from(
        [".", "!", "\u3002", "\u0964", "\uff01", ":", '"', "(", ")", "\u300c", "\u300d"]
    ),
    st.sampled_from(["\n", "\n- ", ", ", " ", "  ", "\u2028", "\t", "-"]),
)


@given(st.lists(PIECES, max_size=40), st.integers(1, 40))
def test_each_quotation_is_a_whole_sentence(pieces, max_tokens):
    text = "".join(pieces)
    sentences = split_sentences(text)

    assert " ".join("".join(sentences).split()).replace(" ", "") == "".join(text.split())
    made = summarize(text, max_tokens=max_tokens)
    assert count(made) <= max_tokens
    for line in made.split("\n"):
        said = line.removeprefix("[1] user: ")
        if said[:1] == said[-1:] == '"' and said not in " ".join(text.split()):
            said = said[1:-1]
        for excerpt in said.split(f" {OMITTED} "):
            # A sentence of the text may itself end with the mark.
            ends = (one.removesuffix(f" {OMITTED}") for one in sentences)
            assert not excerpt or any(excerpt.startswith(one) for one in ends)


@pytest.mark.parametrize(
    "text",
    [
        "a. " * 50_000,
        "( a. B " * 20_000,
        "- a\n" * 50_000,
        ". " * 50_000,
        '" A. ' * 20_000,
        "x" * 10**6,
    ],
)
def test_a_huge_text_is_cut_in_bounded_time(text):
    made = summarize(text, max_tokens=40)

    assert count(made) <= 40


def test_korean_is_read_in_words_however_short():
    made = summarize(
        "\uc608\uc0b0\uc740 \uc624\ubc31. \ud638\ud154 \uc608\uc0b0. \ud638\ud154 \ub0a0\uc528.",
        max_tokens=5,
    )

    assert made == "[1] user: \ud638\ud154 \uc608\uc0b0."
