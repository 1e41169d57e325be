"""trystate.model: the declarations and the checker. It is pure: no I/O, clock, thread, randomness or torch."""

from .errors import DeclarationError, LimitReached, TrystateError, UnavailableError, UsageError

__all__ = ["DeclarationError", "LimitReached", "TrystateError", "UnavailableError", "UsageError"]
