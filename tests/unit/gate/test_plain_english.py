"""Docstrings and comments of the product are in plain English."""

from __future__ import annotations

import pytest

from leasehold_testing.plain_english import PACKAGES, SOURCES, faults, sentences

BAD = '''"""Keep jobs; if one ends, and if one fails, return it.

Whoever is told
what is due waits for nobody where there is room. Short.
"""
x = 1  # Fine.
# Jobs whose lease ends tell it,
# where a node is gone.
'''
GOOD = '"""Return the job if it runs, or None if it ended."""\n'


@pytest.mark.parametrize("package", PACKAGES)
def test_the_prose_of_a_package_is_plain(package):
    files = sorted((SOURCES / package).rglob("*.py"))
    assert files
    found = faults(package, files)
    assert not found, "\n".join(["", *found])


def test_a_fault_names_turn_rate_bound_and_the_worst_sentence(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(BAD)
    lines = faults("planted", [file])
    turns = ("who", "nobody", "what without a noun", "where for if", "told")
    assert [line.split("'")[1] for line in lines if line.startswith("planted")] == list(turns)
    assert lines[:3] == [
        "planted: 'who' 54.05 per 1,000 words; keep it below 0.5",
        f"  {file}:3: Whoever is told what is due waits for nobody where there is room.",
        f"  {file}:7: Jobs whose lease ends tell it, where a node is gone.",
    ]


def test_prose_with_too_few_conditions_is_a_fault(tmp_path):
    file = tmp_path / "bare.py"
    file.write_text('"""Return the job."""\n')
    assert faults("bare", [file]) == ["bare: 'if' 0.00 per 1,000 words; keep it above 6.0"]


def test_plain_text_has_no_fault(tmp_path):
    file = tmp_path / "good.py"
    file.write_text(GOOD + 'TEXT = "nobody tells whoever"\n')
    assert faults("good", [file]) == []
    assert [(s.line, s.text) for s in sentences([file])] == [
        (1, "Return the job if it runs, or None if it ended.")
    ]
