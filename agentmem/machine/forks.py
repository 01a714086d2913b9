"""
Fork hooks: hold locks across a fork, and renew locks and threads in the child.

A child has one thread, and a copy of each lock: one held by another thread stays locked forever.
All hooks of the package are registered here, once, when the first object that needs them is made:
importing it registers none.
"""

import os
import weakref
from collections.abc import Callable
from functools import cache
from typing import Protocol


class Renewable(Protocol):
    """An object with locks or threads that are unusable after a fork."""

    def begin_anew(self) -> None:
        """Recreate them; called in the child, which has no other thread yet."""


class Holdable(Renewable, Protocol):
    """An object that must be idle during a fork."""

    def hold(self) -> None:
        """Wait until it is idle, and block new users."""

    def let_go(self) -> None:
        """Unblock, in the parent."""


_renewed: "weakref.WeakSet[Renewable]" = weakref.WeakSet()
_held: "weakref.WeakSet[Holdable]" = weakref.WeakSet()
_holding: list[Holdable] = []
_calls: list[Callable[[], None]] = []


def renew_in_child(owner: Renewable) -> None:
    """Call `begin_anew` of *owner* in each child, while *owner* is referenced."""
    _register()
    _renewed.add(owner)


def call_in_child(function: Callable[[], None]) -> None:
    """Call *function* in each child."""
    _register()
    _calls.append(function)


def hold_in_fork(owner: Holdable) -> None:
    """Hold *owner* during a fork, and renew it in the child."""
    _register()
    _held.add(owner)
    _renewed.add(owner)


def _before() -> None:
    for owner in list(_held):
        owner.hold()
        _holding.append(owner)


def _after_in_parent() -> None:
    while _holding:
        _holding.pop().let_go()


def _after_in_child() -> None:
    _holding.clear()
    for owner in list(_renewed):
        owner.begin_anew()
    for function in _calls:
        function()


@cache
def _register() -> None:
    """Register the hooks, with the first object that needs them; Windows has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
        )
