"""The manual fits the commands: its examples are command lines, its exit codes exist, TAB completes the names."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trystate import cli, registry
from trystate.__main__ import main
from trystate.choosing import build
from trystate.commands import diagram, operate, prove, replay, run, table, verify
from trystate.completion import NAMES, SHELLS, script
from trystate.exits import USUAL, Exit
from trystate.impl.host import tls
from trystate.impl.store.limits import Limits
from trystate.manual import LIMITS, PAGES, TOP, Page
from trystate.property_tests.tests.command_line.setting import Command, says

PLACEHOLDER = "mypackage.protocol:Mine"  # a user's own system, in the examples
QUICK = {"table", "doctor"}  # run as written; the others need a job, torch, or a long search


def lines(page: Page) -> list[str]:
    """The command lines of a page, each on one line."""
    return [line.strip() for line in page.examples.replace("\\\n", " ").splitlines()]


def words(line: str) -> Iterator[list[str]]:
    """The words of each `trystate` of a command line, without pipes, redirections and variables of the environment."""
    for part in re.split(r" [|&] ", re.split(r" >{1,2} ", line)[0]):
        found = [word for word in shlex.split(part) if not re.match(r"[A-Z_]+=", word)]
        if "-m" in found and found[found.index("-m") + 1] == "trystate":  # a launcher starts it on each rank
            found = found[found.index("-m") + 1 :]
        if found[0] == "trystate":
            yield found[1:]


EXAMPLES = [(name, line) for name, page in {"": TOP, **PAGES}.items() for line in lines(page)]


def refuse_unknown(args: argparse.Namespace) -> None:
    """Raises UsageError if a name in a command line is unknown."""
    if args.command is prove.prove:
        if args.system != PLACEHOLDER:
            prove.chosen(args, args.only)
    elif getattr(args, "system", None) not in (None, PLACEHOLDER) or args.command is verify.verify:
        for name in [args.system] if hasattr(args, "system") else args.systems:
            if name != PLACEHOLDER:
                build(registry.system_class(name), args)
    if args.command is table.table and registry.table_named(args.name, args.edition) is None:
        registry.system_class(args.name)
    if args.command is diagram.diagram:
        drawn = {*registry.table_names(), *(walk.name for walk in registry.WALKS)}
        for name in args.names:
            if name not in drawn | {PLACEHOLDER} and not re.fullmatch(r"[A-Z]\d+", name):
                registry.system_class(name)
        if args.witness:
            registry.witness_named(args.witness, [registry.system_class(name) for name in args.names])
    if args.command is replay.replay and args.name:
        registry.finding_named(args.name)


def parse(argv: list[str]) -> None:
    """Parse a command line as the command does, with its names and torchrun's options.

    Raises:
        UsageError: it is not a command line.
    """
    args = cli.parser().parse_args(argv)
    if args.command is run.run:
        chosen = run.parser().parse_args(args.argv)
        run._refuse_what_cannot_be(chosen)
        run._refuse_what_means_nothing(chosen)
    else:
        refuse_unknown(args)


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line[:60] for _, line in EXAMPLES])
def test_each_example_is_a_command_line_of_its_command(name: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "contexts", lambda _: None)  # the files of an example are not there
    found = list(words(line))
    assert found or "python train.py" in line
    for argv in found:
        if argv[0] == "--print-completion":
            assert argv[1] in SHELLS
            continue
        assert " ".join(argv).startswith(name)
        try:
            parse(argv)
        except SystemExit as done:  # --help
            assert done.code == 0
        if argv[0] in QUICK:
            assert main(argv) == Exit.OK


def test_the_steps_of_an_example_can_be_taken(command: Command) -> None:
    (line,) = (line for line in lines(PAGES["explore"]) if "--walk" in line)
    code, out, err = command(*shlex.split(line)[1:])
    assert (code, "after add_to_participants(0)" in out) == (Exit.OK, True), err


# ---- exit codes


def named(page: Page) -> set[int]:
    """The exit codes that the prose of a page names."""
    return {
        int(code)
        for code in re.findall(r"exits?\s+with\s+(\d+)|exit\s+code\s+(\d+)", page.description)
        for code in code
        if code
    }


def answers(module: str) -> set[Exit]:
    """The exit codes except 0 in a command's module and in the modules of its folder that it imports."""
    tree = ast.parse((Path(inspect.getfile(cli)).parent / "commands" / f"{module}.py").read_text(encoding="utf-8"))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    found = {Exit[node.attr] for node in names if ast.unparse(node.value) == "Exit"} - {Exit.OK}
    beside = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
    return found.union(*(answers(name) for name in beside if name and name not in cli.COMMANDS))


@pytest.mark.parametrize("module", sorted({*cli.COMMANDS.values()}))
def test_each_code_that_a_command_answers_with_is_explained_on_its_page(module: str) -> None:
    names = [name for name, of in cli.COMMANDS.items() if of == module]
    explained = {code for page in PAGES if page.split()[0] in names for code in PAGES[page].exits}
    assert answers(module) <= explained


@pytest.mark.parametrize("name", PAGES)
def test_each_exit_code_of_a_page_is_one(name: str) -> None:
    page = PAGES[name]
    assert {*USUAL} == {*Exit}
    for code, text in page.exits.items():
        assert Exit(code) in USUAL
        assert text != USUAL[code], f"{code} means the usual: leave it out"
    assert named(page) <= {*Exit}
    assert [int(code) for code in re.findall(r"^  (\d+) +\S", page.epilog.partition("examples:")[0], re.M)] == [*Exit]


# ---- single options and texts


def test_status_looks_no_longer_than_its_limit() -> None:
    from trystate.monitor.status import OBSERVE_SECONDS_MAX

    assert operate.OBSERVE_SECONDS_MAX == OBSERVE_SECONDS_MAX
    job = ("status", "--rdzv-endpoint", "127.0.0.1:1", "--rdzv-id", "job")
    assert cli.parser().parse_args([*job, "--observe", "60"]).observe == 60.0


def test_the_help_of_drain_names_both_kinds_of_jobs_that_have_the_mark() -> None:
    for text in (PAGES["drain"].description, operate.CANNOT_DRAIN):
        assert "trystate run" in text and "--rdzv-backend=trystate" in text


def test_the_hint_to_the_docs_has_a_line_of_its_own(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.elastic.multiprocessing import errors

    from trystate.commands import run
    from trystate.impl.agent.health import Unhealthy

    def fail(*_: object) -> None:
        raise Unhealthy("this node leaves: its device is lost")

    monkeypatch.setattr(run, "_launch", fail)
    monkeypatch.setattr(errors, "record", lambda launch: launch)  # torch's needs a stderr with a file number
    assert says(command, Exit.FAILED, "run", "--standalone", "train.py").splitlines()[-2:] == [
        "trystate run: this node leaves: its device is lost",
        f"docs/troubleshooting.md#{Unhealthy.symptom} has the causes and remedies",
    ]


def test_an_unreachable_store_and_a_wrong_endpoint_are_reported(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trystate.monitor import status

    monkeypatch.setattr(status, "CONNECT_SECONDS", 0.2)
    for endpoint, code, why in (("127.0.0.1:1", Exit.INCOMPLETE, "not reached"), ("host:x", Exit.USAGE, "host:port")):
        found, _, err = command("watch", "--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--for", "1")
        assert (found, why in err, "internal" in err) == (code, True, False), err


def test_each_limit_of_the_store_has_its_help() -> None:
    assert {*LIMITS} == {field.name for field in dataclasses.fields(Limits)}


# ---- completion


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script that prints the words that bash would offer after its arguments."""
    pytest.importorskip("shtab")
    path = tmp_path_factory.mktemp("completion") / "complete.bash"
    completes = 'COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _shtab_trystate; printf "%s\\n" "${COMPREPLY[@]}"\n'
    path.write_text(f"{script(cli.parser(), 'bash')}\n{completes}")
    return path


def offered(bash: Path, line: str) -> set[str]:
    """The words that complete the last word of the line."""
    done = subprocess.run(["bash", bash, *line.split(" ")], capture_output=True, text=True, cwd=bash.parent, check=True)
    return {*done.stdout.split()}


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("trystate ex", {"explore", "explain"}),
        ("trystate explore ren", {"rendezvous"}),
        ("trystate verify rendezvous sta", {"state-holders", "start-ups"}),
        ("trystate verify rendezvous --edition ", {"SEED", "TORCH", "TRYSTATE"}),
        ("trystate verify --fault creat", {"creator_crash"}),
        ("trystate table jo", {"join", "journals"}),
        ("trystate diagram scale-u", {"scale-up-newcomer", "scale-up-noticed"}),
        ("trystate replay fast", {"fast-exit"}),
        ("trystate explain comp", {"complete.bash"}),
        ("trystate store serve --record-k", {"--record-keys"}),
        ("trystate store serve --record-keys ", {"rendezvous", "all"}),
        ("trystate run --rdzv-e", {"--rdzv-endpoint"}),
        ("trystate run comp", {"complete.bash"}),
        ("trystate --print-completion ", {*SHELLS}),
    ],
)
def test_tab_completes_commands_options_systems_editions_tables_and_files(
    bash: Path, line: str, some: set[str]
) -> None:
    found = offered(bash, line)
    assert some <= found
    assert all(word.startswith(line.split(" ")[-1]) for word in found)


def test_a_missing_package_is_said(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    code, _, err = command("--print-completion", "bash")
    assert (code, err) == (Exit.INCOMPLETE, "trystate: --print-completion bash needs shtab: pip install shtab\n")


def test_each_name_that_completes_is_one_word() -> None:
    for names in ("SYSTEM", "--edition", "--fault", "--engine", "--witness"):
        assert all(re.fullmatch(r"[\w-]+", name) for name in NAMES["", names]()), names
