"""The ways through the code in docs/explanation/a-job-in-ten-minutes.md lead through the code."""

import ast
import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: Most files and forms from REST to the process.
MOST_FILES, MOST_FORMS = 40, 15


if not (ROOT / ".ci").is_dir():
    pytest.skip("the tests were copied away from the sources", allow_module_level=True)


def _house():
    loader = importlib.machinery.SourceFileLoader("house", str(ROOT / ".ci" / "house"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("house", loader))
    loader.exec_module(module)
    return module


WAYS = _house().ways()


def _classes():
    return {
        node.name
        for folder in ("agent", "api", "policies", "scheduler", "simulator", "traces")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    }


def test_there_are_three_ways():
    assert len(WAYS) == 3
    assert all(len(files) > 10 for files, _ in WAYS.values())


@pytest.mark.parametrize("way", WAYS)
def test_each_file_is_there_and_is_named_once(way):
    files, _ = WAYS[way]
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert sorted(files) == sorted(set(files))


def test_each_form_is_a_class():
    forms = {form for _, forms in WAYS.values() for form in forms}
    assert forms - _classes() == set()


def test_the_way_to_the_process_is_short():
    files, forms = next(iter(WAYS.values()))
    assert len(files) <= MOST_FILES
    assert len(forms) <= MOST_FORMS
