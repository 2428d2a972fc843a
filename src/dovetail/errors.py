"""The error tree. An expected outcome is a value; an exception means broken input or a broken world.

DovetailError
├── InputError              what was given cannot be used; says where and what was expected
│   ├── NotFound            what was named is not there; says what was probably meant
│   ├── QuantityError       not a Kubernetes quantity
│   ├── SemverError         not a semantic version
│   └── ExpressionError     a CEL expression that does not compile
└── StateError              what was stored cannot be trusted; nothing is overwritten
"""

from __future__ import annotations


class DovetailError(Exception):
    """Anything Dovetail raises on purpose."""


class InputError(DovetailError, ValueError):
    """Given input is not usable; the message names the place and what was expected."""


class NotFound(InputError, LookupError):
    """What was named is not there; the message says what was probably meant, if anything is near."""


class QuantityError(InputError):
    """Text that is not a Kubernetes quantity."""


class SemverError(InputError):
    """Text that is not a semantic version as Kubernetes understands it."""


class ExpressionError(InputError):
    """A CEL expression that does not compile."""


class StateError(DovetailError):
    """Stored state that cannot be read or trusted; the caller must not overwrite it."""
