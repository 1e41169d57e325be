"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE (`ci`, the default, is the same on every run); `--quick`."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import trystate.model

TESTS = Path(__file__).resolve().parent
CHECKOUT = TESTS.parents[1]
TESTED = Path(str(trystate.model.__file__)).resolve().parents[1]
if TESTED != CHECKOUT:
    raise pytest.UsageError(
        f"these tests are of {CHECKOUT}, but `import trystate` finds {TESTED}: pip install -e '{CHECKOUT}[test]'"
    )
# These modules are the checkout's, as was checked above:
from trystate.property_tests.adapters.torch_release import NotInRelease, missing_method  # noqa: E402
from trystate.property_tests.support.nightly import EXAMPLES, LONG, NIGHTLY, NUMBERS  # noqa: E402
from trystate.property_tests.support.quick import QUICK  # noqa: E402

# torch's clients and servers look up the names of their peers; a name server that does not answer costs 5 s and more
# each time. The C library reads this once, when the first name is looked up.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
# A warning of torch's C++ names both ends of a socket, and looks the names up: a call that ends at its timeout would
# end a second or two after it. Names are looked up only for warnings that are printed.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

SLOW = [HealthCheck.too_slow]  # building and exploring a system takes longer than drawing it

settings.register_profile("dev", deadline=None, max_examples=25, suppress_health_check=SLOW)
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=EXAMPLES,
    print_blob=True,
    suppress_health_check=SLOW,
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=14)
settings.register_profile(
    "nightly", deadline=None, max_examples=NUMBERS["examples"], print_blob=True, suppress_health_check=SLOW
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only the tests of property_tests/support/quick.py")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        settings.load_profile("quick")
    if NIGHTLY:
        config.option.loadscopereorder = False  # pytest-xdist would begin with the files of most tests


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that is not in the quick selection is not even imported."""
    if not config.getoption("--quick") or not collection_path.name.startswith("test_"):
        return None
    return collection_path.relative_to(TESTS).as_posix() not in QUICK or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        slow = [item for item in items if _name(item) in QUICK[item.path.relative_to(TESTS).as_posix()]]
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)
    if NIGHTLY:
        items.sort(key=lambda item: [*LONG, name := item.path.relative_to(TESTS).as_posix()].index(name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """A test of something that the installed torch does not have yet is skipped, with the release that has it."""
    try:
        yield
    except NotInRelease as lacking:
        pytest.skip(str(lacking))
    except AttributeError as error:
        if absent := missing_method(error):
            pytest.skip(absent)
        raise


def _name(item: pytest.Item) -> str:
    return item.name.partition("[")[0]


def pytest_collection_finish() -> None:
    """Modules that are imported by now stay: no collection is to go through them again and again."""
    gc.collect()
    gc.freeze()
