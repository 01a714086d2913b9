"""
Parallel subtasks: three look at one thing each, share the parent's prefix, hand back one line.

Run ``python examples/parallel_subtasks.py``. The requests of all three are computed in one batch.
"""

import asyncio

from agentmem import Budget, LanguageModel, Memory, Sampling, Session

HOTELS = {
    "Hotel Lisboa": "92 EUR a night, breakfast 9 EUR, 12 minutes by metro to the station",
    "Casa Verde": "105 EUR a night with breakfast, 6 minutes on foot to the station",
    "Pensao Azul": "61 EUR a night, no breakfast, 25 minutes by tram to the station",
}


async def look_at(session: Session, hotel: str) -> str:
    """Judge one hotel in a branch of its own; only the promoted line comes back."""
    async with await session.asubtask(f"look at {hotel}", inherit="all") as task:
        question = f"{hotel}: {HOTELS[hotel]}. Does it fit? One short sentence."
        reply = await task.areply(question, sampling=Sampling(max_tokens=32))
        task.promote(f"{hotel}: {reply.text}")
    usage = reply.usage
    return f"{hotel}: {usage.cached_tokens} of {usage.prompt_tokens} prompt tokens were cached"


async def compare(session: Session) -> None:
    """Look at all hotels at once, then ask the parent, which has the promoted lines alone."""
    session.pin("role", "You are a travel agent. Answer in one short sentence.")
    await session.areply("We want a hotel in Lisbon for under 100 EUR, breakfast included.")
    for line in await asyncio.gather(*(look_at(session, hotel) for hotel in HOTELS)):
        print(line)
    choice = await session.areply("Which one do we take?", sampling=Sampling(max_tokens=32))
    print(choice.text)
    print([str(stored.message.role) for stored in session.messages()])
    print([f"{branch.name}: {branch.state}" for branch in session.branches()])


def main(model: LanguageModel, url: str = "sqlite:///hotels.db") -> None:
    """Compare three hotels."""
    with Memory.open(url, model=model, budget=Budget(context=1024, reply=64)) as memory:
        asyncio.run(compare(memory.session("hotels")))


if __name__ == "__main__":
    from agentmem.inference import LocalModel

    with LocalModel.load() as local:
        main(local)
