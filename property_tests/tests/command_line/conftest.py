"""The fixtures of the tests of the commands."""

from trystate.property_tests.tests.command_line.setting import command, plan, said, script

__all__ = ["command", "plan", "said", "script"]
