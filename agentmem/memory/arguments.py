"""What a caller may write loosely, read strictly."""

from dataclasses import replace

from agentmem.config import Budget, Sampling
from agentmem.errors import ConfigError, InvalidInputError
from agentmem.types import PinScope, Role


def bounded_sampling(sampling: Sampling, budget: Budget) -> Sampling:
    """
    Bound the answer by the reply reserve, which the prompt has left free for it.

    Raises:
        ConfigError: more tokens are asked for than are kept free.
    """
    if sampling.max_tokens is not None and sampling.max_tokens > budget.reply:
        raise ConfigError(
            f"max_tokens is {sampling.max_tokens} but the budget keeps {budget.reply} tokens for "
            "the reply: lower max_tokens or raise Budget.reply"
        )
    return replace(sampling, max_tokens=sampling.max_tokens or budget.reply)


def role_of(role: Role | str) -> Role:
    """
    Read the name of a role.

    Raises:
        InvalidInputError: there is no such role.
    """
    try:
        return Role(role)
    except ValueError as error:
        names = ", ".join(Role)
        raise InvalidInputError(f"there is no role {role!r}: it is one of {names}") from error


def pin_scope_of(scope: PinScope | str) -> PinScope:
    """
    Read the name of a pin scope.

    Raises:
        InvalidInputError: there is no such scope.
    """
    try:
        return PinScope(scope)
    except ValueError as error:
        names = ", ".join(PinScope)
        raise InvalidInputError(f"there is no pin scope {scope!r}: one of {names}") from error
