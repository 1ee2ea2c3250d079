"""The command ``leasehold`` as a process: overview, version, errors, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

import leasehold.cli.main as main_module
from leasehold.cli.lazy import load
from leasehold.cli.main import COMMANDS, main
from scheduler.errors import InputError


def _leasehold(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leasehold", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_lists_every_command_with_its_summary():
    shown = _leasehold("--help")
    assert shown.returncode == 0
    for name, command in COMMANDS.items():
        assert name in shown.stdout
        assert command.summary in " ".join(shown.stdout.replace("│", " ").split())


def _below(path, command):
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _below([*path, name], one)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_shows_every_word_and_no_types_of_python(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "500")
    for path, command in _below([name], load(name, COMMANDS[name])):
        command.main(["--help"], prog_name=" ".join(path), standalone_mode=False)
        shown = capsys.readouterr().out
        for param in command.params:
            if param.param_type_name == "option" and not param.hidden:
                assert (param.help or "").strip() in shown, (path, param.opts)
        options = shown.partition("─ Options")[2]
        assert not re.findall("<(?:bool|int|str|float|list)", options), path


def test_help_imports_no_slow_library():
    code = (
        "import sys; from leasehold.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'numpy', 'scipy', 'cvxpy', 'numba', 'plotly', 'highspy'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_version_is_that_of_the_distribution():
    assert _leasehold("--version").stdout == f"leasehold {version('leasehold-sdk')}\n"


def test_an_unknown_command_is_a_usage_error():
    ran = _leasehold("simulte")
    assert ran.returncode == 2
    assert "No such command" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "said", "of"),
    [
        (["jobs", "--bogus"], "No such option: --bogus", "leasehold jobs"),
        (["job"], "Missing argument 'JOB'.", "leasehold job"),
        (
            ["savings", "x", "--cluster", "v100:1"],
            "--throughputs is missing: throughput table: native CSV, Gavel's JSON, or bundled",
            "leasehold savings",
        ),
        (["traces", "inspct"], "No such command 'inspct'", "leasehold traces"),
        (["sbumit"], "No such command 'sbumit'; did you mean 'submit'?", "leasehold"),
        (
            ["submit", "--weight", "x", "--", "a"],
            "--weight is 'x'; give a number",
            "leasehold submit",
        ),
    ],
)
def test_a_usage_error_is_one_line_and_a_hint(arguments, said, of):
    ran = _leasehold(*arguments)
    first, hint = ran.stderr.splitlines()
    assert first.startswith(f"leasehold: {said}")
    assert hint == f"  see `{of} --help`"
    assert (ran.returncode, ran.stdout) == (2, "")


@pytest.mark.parametrize("arguments", [[], ["traces"]])
def test_no_command_at_all_shows_the_help(arguments):
    ran = _leasehold(*arguments)
    assert ran.returncode == 2
    assert "Usage: leasehold" in ran.stdout + ran.stderr
    assert "No such" not in ran.stderr


def test_completion_is_offered():
    shown = _leasehold("--help").stdout
    assert "--install-completion" in shown


def _raising(error: BaseException):
    def run(**_: object) -> None:
        raise error

    return run


def test_an_error_of_ours_is_one_line_on_stderr_and_exit_code_2(monkeypatch, capsys):
    monkeypatch.setattr(main_module, "app", _raising(InputError("x is 3;\n give 4")))
    assert main() == 2
    captured = capsys.readouterr()
    assert captured.err == "leasehold: x is 3; give 4\n"
    assert not captured.out
    monkeypatch.setattr(main_module, "app", _raising(InputError("f: a is 3\nf: b is 4")))
    assert main() == 2
    assert capsys.readouterr().err == "leasehold: f: a is 3; f: b is 4\n"


def test_an_error_of_the_system_has_its_file_and_no_number(monkeypatch, capsys):
    for error, said in (
        (FileNotFoundError(2, "No such file or directory", "/none"), "/none: No such file"),
        (OSError("cannot listen on port 1"), "cannot listen on port 1"),
    ):
        monkeypatch.setattr(main_module, "app", _raising(error))
        assert main() == 1
        assert capsys.readouterr().err.startswith(f"leasehold: {said}")


def test_an_interrupt_ends_with_130(monkeypatch, capsys):
    monkeypatch.setattr(main_module, "app", _raising(KeyboardInterrupt()))
    assert main() == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_bug_is_not_hidden(monkeypatch):
    monkeypatch.setattr(main_module, "app", _raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main()
