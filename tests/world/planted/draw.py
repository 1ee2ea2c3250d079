"""Draws faults with Cosmic Ray, to be planted: writes ``drawn.json``.

    python -m pip install cosmic-ray && python tests/world/planted/draw.py --seed 11 --count 25

The module is drawn first, then the kind of mutation, then its place; so that a module with many
lines, or an operator with many kinds of nonsense, is not drawn all the time. Mutations without an
observable effect are left out: those in annotations, which are not evaluated, and in lines that
log, count or time.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import random
from collections import defaultdict
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).parents[3]
MODULES = (
    "scheduler/runtime/driver/driver.py",
    "scheduler/runtime/driver/leadership.py",
    "scheduler/control/state/leases.py",
    "scheduler/control/nodes/reports.py",
    "tests/support/leasehold_testing/memory_store.py",
    "scheduler/store/checks.py",
    "agent/loop.py",
    "agent/reconcile.py",
)
#: Texts of lines that are not mutated.
UNSEEN = ("_log.", "metrics", "log_", "def ", "import", "->", '"""')


def places(code: str) -> dict[str, list[tuple[str, int]]]:
    """Return by kind of mutation every (operator, occurrence) that there is in a module."""
    tree, found = get_ast(code), defaultdict(list)
    for name in sorted(plugins.operator_names()):
        operator, count = plugins.get_operator(name), 0
        if "Decorator" in name:
            continue
        try:
            count = sum(1 for node in ast_nodes(tree) for _ in operator().mutation_positions(node))
        except TypeError:
            continue
        found[name.partition("_")[0]] += [(name, number) for number in range(count)]
    return {kind: found[kind] for kind in sorted(found) if found[kind]}


def mutation(code: str, name: str, occurrence: int) -> tuple[str, str] | None:
    """Return (before, after) of a mutation, as whole lines; None for one that is left out."""
    mutated = mutate_code(code, plugins.get_operator(name)(), occurrence)
    try:
        if mutated is None or _plain(mutated) == _plain(code):
            return None
    except SyntaxError:
        return None
    edit = lines(code, mutated)
    return None if edit is None or any(word in edit[0] for word in UNSEEN) else edit


def _plain(code: str) -> str:
    return ast.dump(ast.parse(code), annotate_fields=False)


def lines(before: str, after: str) -> tuple[str, str] | None:
    """Return the changed lines, with as many before them as it takes to find them again."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    if len(edits) != 1:
        return None
    _, first, last, new_first, new_last = edits[0]
    changed = [line.strip() for line in old[first:last]]
    if any(": " in line and "=" not in line and line.endswith(",") for line in changed):
        return None  # a parameter with its annotation
    for back in range(12):
        piece = "".join(old[first - back : last])
        if before.count(piece) == 1:
            return piece, "".join([*old[first - back : first], *new[new_first:new_last]])
    return None


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--count", type=int, default=25)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    codes = {name: (ROOT / name).read_text() for name in MODULES}
    pool = {name: places(code) for name, code in codes.items()}
    drawn, seen = [], set()
    while len(drawn) < options.count:
        module = MODULES[len(drawn) % len(MODULES)]
        kind = chance.choice(sorted(pool[module]))
        found = mutation(codes[module], *chance.choice(pool[module][kind]))
        if found is None:
            continue
        before, after = found
        if (module, before) in seen:
            continue
        seen.add((module, before))
        drawn.append(
            {"name": f"d{len(drawn) + 1:02d}", "path": module, "kind": kind, "before": before,
             "after": after}
        )  # fmt: skip
    path = Path(__file__).with_name("drawn.json")
    path.write_text(json.dumps(drawn, indent=1) + "\n")


if __name__ == "__main__":
    main()
