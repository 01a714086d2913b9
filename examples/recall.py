"""
Recall over a long history: 2,000 messages, a window of 512 tokens, one fact from the beginning.

Run ``python examples/recall.py``. It needs the extra ``retrieval``; words alone find this, so no
embedder is loaded. `HybridRetriever.load()` finds by meaning too.
"""

from agentmem import Budget, LanguageModel, Memory, Session
from agentmem.retrieval import HybridRetriever

FACT = "Please note: the spare key is under the blue flower pot behind the house."
QUESTION = "Where did I say the spare key is?"
NUM_TURNS = 1000
TURN_OF_FACT = 20


def live_through(session: Session) -> None:
    """Say the fact once, early, and then talk about other things for long."""
    for number in range(NUM_TURNS):
        text = (
            FACT
            if number == TURN_OF_FACT
            else f"Day {number}: I walked {number % 9 + 1} km by the river."
        )
        session.append("user", text)
        session.append("assistant", f"Noted for day {number}.")


def show(session: Session) -> None:
    """Ask for the fact, and show how it came into the prompt."""
    reply = session.reply(QUESTION)
    prompt = reply.prompt
    print({str(tier): num for tier, num in prompt.tokens_by_tier.items()})
    for hit in prompt.recalled[:1]:
        if hit.position is not None:
            print(hit.position, session.messages(hit.position, hit.position)[0].message.text)
    print("in the prompt:", FACT in prompt.text, "- without recall:", is_shown_anyway(session))
    print("agent:", reply.text)


def is_shown_anyway(session: Session) -> bool:
    """Return whether the window alone would have shown the fact."""
    return FACT in session.assemble(hits=()).text


def main(model: LanguageModel, url: str = "sqlite:///long.db") -> None:
    """Live through a long history, and ask for its beginning."""
    budget = Budget(context=512, reply=48)
    with Memory.open(url, model=model, retriever=HybridRetriever(), budget=budget) as memory:
        session = memory.session("diary")
        if session.branch.head == 0:
            live_through(session)
        show(session)


if __name__ == "__main__":
    from agentmem.inference import LocalModel

    with LocalModel.load() as local:
        main(local)
