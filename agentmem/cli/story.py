"""The conversation that the demo plays: short, and with one fact that only memory can answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """
    A user message; a tool may answer before the model does.

    Args:
        user: the question.
        answer: the answer of a scripted model.
        call: name and arguments of a tool call.
        result: the result of the tool.
    """

    user: str
    answer: str
    call: tuple[str, str] | None = None
    result: str = ""


PINS = (
    ("role", "You are a travel agent. Answer in one short sentence."),
    ("limit", "Never exceed 500 EUR for the whole trip. Ana is allergic to shellfish."),
)

FACT = "4417"
"""The fact of the last question, stated once in the second turn."""

BEFORE = (
    Turn(
        user="Hello! Ana and I want three nights in Lisbon. How do we begin?",
        answer="Welcome! I will plan three nights in Lisbon for you.",
    ),
    Turn(
        user="Please remember: our locker at Santa Apolonia station has the code 4417.",
        answer="Noted: the locker code is 4417.",
    ),
    Turn(
        user="Which trains are there on Friday morning?",
        call=("search_trains", '{"from": "Porto", "to": "Lisbon", "day": "Friday"}'),
        result="Alfa Pendular 08:47 to 11:50, promotional fare 22.50 EUR, 14 seats left. "
        "Intercidades 09:47 to 13:04, 17.00 EUR, 41 seats left. Alfa Pendular 10:47 to 13:50, "
        "34.70 EUR, flexible. All prices are for one adult in second class, without a bicycle.",
        answer="The Intercidades at 09:47 is the cheapest, 34 EUR for two.",
    ),
)

SUBTASK = (
    Turn(
        user="Compare the two hotels: price for three nights, breakfast, way to the station.",
        call=("search_hotels", '{"city": "Lisbon", "nights": 3}'),
        result="Hotel Lisboa: 92 EUR a night, breakfast 9 EUR, 12 minutes by metro to the station, "
        "rooms to a busy street. Casa Verde: 105 EUR a night with breakfast, a garden, 6 minutes "
        "on foot to Santa Apolonia. Both can be cancelled without a fee until two days before.",
        answer="Casa Verde is 315 EUR with breakfast, near the station.",
    ),
)
PROMOTED = "The hotel is Casa Verde: 315 EUR for three nights with breakfast."

AFTER = (
    Turn(
        user="What is there to see on Saturday, if it rains?",
        call=("search_sights", '{"city": "Lisbon", "indoors": true}'),
        result="Tile museum, 8 EUR, 10 to 18 h, in an old convent with a cafe in its garden. "
        "Oceanarium, 25 EUR, 10 to 20 h, best in the morning. Coach museum, 8 EUR, not on Mondays. "
        "Gulbenkian collection, 10 EUR, free on Sundays after 14 h, in a park with ponds.",
        answer="The tile museum, 16 EUR for two, is a good place for rain.",
    ),
    Turn(
        user="And where do we eat on Saturday evening? Mind the allergy.",
        call=("search_restaurants", '{"city": "Lisbon", "without": "shellfish"}'),
        result="O Jardim: vegetable stews and grilled cheese, 18 EUR, a kitchen without fish. "
        "Tasca da Luz: pork and beans, 15 EUR, crab soup on Fridays. Prego no Bolo: steak, "
        "11 EUR, no seafood at all, open until midnight, no reservations.",
        answer="O Jardim has a kitchen without fish, 36 EUR for two.",
    ),
    Turn(
        user="Fine. What is left for Sunday, and when does the train back go on Monday?",
        answer="Sunday is free for the Gulbenkian; trains back go from 08:09 on.",
    ),
)

LAST = Turn(
    user="One more thing: what is the code of our locker at the station?",
    answer="The code of your locker is 4417.",
)


def texts() -> list[str]:
    """Return the texts of users and tools in the main session, to count their tokens."""
    turns = (*BEFORE, *AFTER, LAST)
    return [text for turn in turns for text in (turn.user, turn.result, turn.answer) if text]


def answers() -> list[str]:
    """Return the answers of a scripted model, in the order of the story."""
    return [turn.answer for turn in (*BEFORE, *SUBTASK, *AFTER, LAST)]
