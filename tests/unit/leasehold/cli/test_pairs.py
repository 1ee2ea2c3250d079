"""Cells of any structure are words."""

from __future__ import annotations

import json

import pytest

from leasehold.cli.display.output import format_pairs
from leasehold.cli.exit_codes import NOT_FOUND
from leasehold.cli.session.each import do_to_each
from scheduler.errors import NotFoundError


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1, "b": None, "c": True}, "a=1 c=yes"),
        ({"workers": {"v100": 2, "k80": 1}}, "workers=v100:2,k80:1"),
        ({"nodes": ["a", "b"], "none": []}, "nodes=a,b"),
        ({"evidence": [{"job": "j-1", "message": "no"}]}, "evidence=(job=j-1 message=no)"),
        (
            {"evidence": [{"job": "j-1"}, {"job": "j-2"}, {"job": "j-3"}]},
            "evidence=3, the last: (job=j-3)",
        ),
    ],
)  # fmt: skip
def test_figures_of_an_event_are_words(value, words):
    assert format_pairs(value) == words


def test_each_name_is_tried_and_each_failure_told(capsys):
    def revoke(name):
        if name == "b":
            raise NotFoundError("there is no token 'b'")

    with pytest.raises(Exception) as ended:
        do_to_each(["a", "b", "c", "a"], revoke, done="revoked", as_json=False)
    assert ended.value.exit_code == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("a revoked\nc revoked\n", "leasehold: there is no token 'b'\n")
    with pytest.raises(NotFoundError):
        do_to_each(["b"], revoke, done="revoked", as_json=False)
    with pytest.raises(Exception) as ended:
        do_to_each(["b"], revoke, done="revoked", as_json=True)
    assert ended.value.exit_code == NOT_FOUND
    failed = [{"name": "b", "error": "there is no token 'b'"}]
    assert json.loads(capsys.readouterr().out) == {"revoked": [], "failed": failed}
