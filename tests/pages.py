"""The blocks of code in a page of Markdown, and what is said to be printed by each."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
PAGES = sorted(DOCS.rglob("*.md"))

_BLOCK = re.compile(
    r"(?P<mark><!-- not run: [^>]+ -->\n)?```python\n(?P<code>.*?)```\n"
    r"(?:\s*(?:prints|打印|输出)?\s*```text\n(?P<printed>.*?)```)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of Python, and the text block that follows it."""

    code: str
    printed: str | None
    is_run: bool


def blocks_of(path: Path) -> list[Block]:
    return [
        Block(code=found["code"], printed=found["printed"], is_run=found["mark"] is None)
        for found in _BLOCK.finditer(path.read_text("utf-8"))
    ]


def prelude_of(path: Path) -> list[Block]:
    """Return what the blocks of *path* go on from: a how-to has that of its index."""
    index = DOCS / "how-to" / "index.md"
    return blocks_of(index) if path.parent == index.parent and path != index else []


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def play(path: Path, capsys) -> None:
    """Run all blocks of *path* in one namespace, and compare what they print."""
    space = {"__name__": "page"}
    try:
        for block in (*prelude_of(path), *blocks_of(path)):
            if block.is_run:
                exec(compile(block.code, str(path), "exec"), space)  # noqa: S102 - our own page
                printed = capsys.readouterr().out
                if block.printed is not None:
                    assert printed.splitlines() == block.printed.splitlines()
    finally:
        for name in ("memory", "model"):
            close = getattr(space.get(name), "close", None)
            if close is not None:
                close()
