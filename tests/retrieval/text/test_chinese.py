"""A conversation in Chinese, with English in it: facts are found by questions in both."""

# ruff: noqa: RUF001 - full-width marks belong to the language

import numpy as np
import pytest

from agentmem.retrieval.fusion.rrf import rank
from tests.retrieval.entries import entry, indexed, query

TEXT = """
小雨：你好，阿强！好久不见，最近忙什么呢？
阿强：刚搬到成都，公司在高新区，每天骑车上班。
小雨：成都好啊，火锅吃了没有？
阿强：吃了三次了，我最怕花椒，每次都点鸳鸯锅。
小雨：我这边养了一只橘猫，名字叫豆包，特别能吃。
阿强：哈哈，我对猫毛过敏，只能看看照片。
小雨：对了，我妹妹下个月在杭州结婚，我要当伴娘。
阿强：恭喜恭喜！具体哪一天？
小雨：六月十八号，酒店订在西湖边上。
阿强：那天我正好要去北京出差，开产品发布会。
小雨：你们做的是什么产品？
阿强：一个用 Python 写的数据平台，后台用 PostgreSQL，前端用 React。
小雨：听起来很厉害，我还在学 SQL 呢。
阿强：可以先看《SQL必知必会》，我就是从那本书入门的。
小雨：好的，我记下来了。你还弹吉他吗？
阿强：早就不弹了，现在改学大提琴，老师姓陈。
小雨：大提琴多贵啊！
阿强：租的，一个月三百块。
小雨：我上周去医院检查，医生说我缺维生素D。
阿强：那要多晒太阳，成都可不容易见到太阳。
小雨：下次你来上海，我带你去吃生煎包。
阿强：一言为定！我的航班号是 MU5401，七月二号到虹桥。
小雨：收到，我去接你，我开那辆白色的比亚迪。
阿强：你什么时候买的车？
小雨：去年年底，花了十二万。
阿强：我还是喜欢骑自行车，上个月刚骑完环青海湖。
小雨：三百六十公里！骑了几天？
阿强：四天，最后一天遇上了冰雹。
小雨：佩服。爷爷的手术怎么样了？
阿强：很顺利，膝盖换了人工关节，下周就能出院。
"""
TALK = TEXT.strip().splitlines()

QUESTIONS = [
    ("阿强搬到了哪个城市？", 2),
    ("阿强最怕吃什么调料？", 4),
    ("小雨的猫叫什么名字？", 5),
    ("谁对猫毛过敏？", 6),
    ("妹妹在哪里结婚？", 7),
    ("酒店订在什么地方？", 9),
    ("出差去北京做什么？", 10),
    ("入门SQL看的是哪本书？", 14),
    ("阿强现在学什么乐器？是大提琴吗？", 16),
    ("租大提琴一个月多少钱？", 18),
    ("医生说小雨缺什么维生素？", 19),
    ("航班号是多少？", 22),
    ("小雨开什么颜色的比亚迪？", 23),
    ("环青海湖骑了几天？", 28),
    ("爷爷做了什么手术？膝盖怎么了？", 30),
]
MIXED = [
    ("数据平台是用Python写的吗？", 12),
    ("后台用的是什么？PostgreSQL？", 12),
    ("React frontend", 12),
    ("MU5401 什么时候到？", 22),
    ("flight mu5401", 22),
    ("SQL 书", 14),
]


@pytest.fixture(scope="module")
def talk():
    entries = []
    for number, line in enumerate(TALK, start=1):
        speaker, _, text = line.partition("：")
        role = "user" if speaker == "小雨" else "assistant"
        entries.append(entry(number, text, minute=number, speaker=speaker, role=role))
    return indexed(entries)


def found(talk, text, *, dense=None):
    message_table, lexical = talk
    ranking = rank(message_table, lexical.scores(text), dense, query(text))
    return message_table.positions[ranking.rows].tolist()


def test_there_are_thirty_turns():
    assert len(TALK) == 30


@pytest.mark.parametrize(("text", "position"), QUESTIONS + MIXED)
def test_a_fact_is_among_the_first_three(talk, text, position):
    assert position in found(talk, text)[:3]


def test_most_facts_come_first(talk):
    first = [found(talk, text)[0] == position for text, position in QUESTIONS]
    assert np.mean(first) >= 0.8


def test_vectors_of_an_embedder_of_english_do_no_harm(talk):
    noise = np.random.default_rng(1).uniform(size=len(TALK)).astype(np.float32)
    for text, position in QUESTIONS:
        assert position in found(talk, text, dense=noise)[:3]


def test_one_character_is_found(talk):
    assert set(found(talk, "猫")[:2]) == {5, 6}


def test_names_in_chinese_push_who_is_named(talk):
    asked = found(talk, "小雨的车")
    assert talk[0].speakers[asked[0] - 1] == talk[0].speaker_numbers["小雨"]


def test_a_word_of_one_character_is_found_beside_others():
    """No pair of the question is in the text."""
    said = ["我的猫叫咪咪，今年三岁。", *["好的，记住了。", "今天天气很好。"] * 10]
    _, lexical = indexed([entry(position, text) for position, text in enumerate(said, 1)])

    assert int(lexical.scores("猫几岁了？").argmax()) == 0
