"""One API function = one command: names, parameters, defaults and help agree, for every command."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys

import pytest

from polypscope.cli import COMMANDS, GROUPS, build_app, run

_BY_WORDS = {command.words: command for command in COMMANDS}


def _function(target: str):
    module, name = target.split(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("words", _BY_WORDS)
def test_command_equals_its_api_function(words: str) -> None:
    command = _BY_WORDS[words]
    function = _function(command.function)
    app = build_app(words.split())
    _, apps, _ = app.parse_commands(words.split())
    arguments = apps[-1].assemble_argument_collection()
    named = {argument.field_info.name: argument for argument in arguments if argument.field_info.name}
    signature = inspect.signature(function)
    # An argument of a group of values (a dataclass) may have children; only the top level is compared.
    assert set(signature.parameters) <= set(named), "a parameter of the function has no argument on the command line"
    for name, parameter in signature.parameters.items():
        default = named[name].field_info.default
        assert default == parameter.default, f"{words} {name}"


@pytest.mark.parametrize("words", _BY_WORDS)
def test_help_is_made_from_the_docstring(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = _BY_WORDS[words]
    function = _function(command.function)
    doc = inspect.getdoc(function)
    assert doc, f"{command.function} has no docstring"
    assert doc.splitlines()[0] == command.summary
    for name, parameter in inspect.signature(function).parameters.items():
        assert f"{name}" in doc, f"{command.function} does not document {name}"
        assert parameter.annotation is not inspect.Parameter.empty
    assert run([*words.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert command.summary.split(":")[0][:30] in " ".join(shown.split())
    # Docstrings are read as Markdown: what it takes for markup, such as <clip>, would be lost.
    description, _, rest = doc.partition("Parameters\n----------\n")
    told = description + "\n".join(line for line in rest.splitlines() if line.startswith(" "))
    assert set(_words(told)) <= set(_words(shown))


def _words(text: str) -> list[str]:
    return re.findall(r"[\w<>*/.…=-]*\w[\w<>*/…=-]*", text)


def test_every_group_is_described() -> None:
    firsts = {command.words.split()[0] for command in COMMANDS if " " in command.words}
    assert firsts <= set(GROUPS)


def test_unknown_word_gets_a_suggestion_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docter"]) == 2
    captured = capsys.readouterr()
    assert 'Did you mean "doctor"' in captured.out + captured.err


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys; from polypscope.cli import run; run(['--help']);"
        "heavy = {'numpy', 'cv2', 'av', 'torch', 'scipy', 'matplotlib', 'polars', 'numba', 'onnxruntime', 'pydantic'};"
        "print('LOADED', sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "LOADED []" in out
