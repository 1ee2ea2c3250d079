"""The site of the documentation: its pages, their links, and what programs read of it."""

import re
from collections import Counter
from pathlib import Path

import pytest
from markdown import Markdown
from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files

from leasehold_testing import docs_site
from leasehold_testing.docs_site import llms, navigation, outside, placed, relinked, summary

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
OUTSIDE = [path for path in outside(ROOT) if path.endswith(".md")]


def _write(root, **pages):
    for name, text in pages.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _shown(nav):
    for entry in nav:
        yield from [entry] if isinstance(entry, str) else next(iter(entry.values()))


def test_every_page_is_in_the_navigation_once():
    more = [placed(path) for path in OUTSIDE]
    shown = Counter(_shown(navigation(ROOT / "docs", more)))
    assert shown == Counter(placed(path) for path in [*PAGES, *OUTSIDE])


def test_the_navigation_has_the_order_and_the_titles_of_the_index_pages(tmp_path):
    _write(
        tmp_path,
        **{
            "index.md": "# All\n[b](b/index.md), [two](a-z/two.md), [one](a-z/one.md), [c](c.md)",
            "b/index.md": "# Guides\n[y](y.md), [x](x.md#part), [y](y.md), [out](../a-z/one.md)",
        },
    )
    assert navigation(tmp_path, ["repository/more.md"]) == [
        "index.md",
        "c.md",
        {"Guides": ["b/index.md", "b/y.md", "b/x.md"]},
        {"A-z": ["a-z/two.md", "a-z/one.md"]},
        {"Repository": ["repository/more.md"]},
    ]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("docs/a/b.md", "[x](c.md#d)", "[x](c.md#d)"),
        ("docs/a/b.md", "[x](../../CHANGELOG.md)", "[x](../repository/CHANGELOG.md)"),
        ("docs/index.md", "[x](../f/README.md#d)", "[x](repository/f/readme.md#d)"),
        ("f/README.md", "[`x`](../docs/a/b.md#d)", "[`x`](../../a/b.md#d)"),
        ("f/README.md", "![x](y.png)", "![x](y.png)"),
        ("f/README.md", "[x](#d), [y](https://e.example)", "[x](#d), [y](https://e.example)"),
        ("f/README.md", "`[x](../docs/a.md)`", "`[x](../docs/a.md)`"),
        ("f/README.md", "```\n[x](../docs/a.md)\n```", "```\n[x](../docs/a.md)\n```"),
    ],
)
def test_a_link_leads_where_the_site_has_the_file(path, text, expected):
    assert relinked(text, path) == expected


def test_files_outside_are_found_through_pages_outside(tmp_path):
    _write(
        tmp_path,
        **{
            "docs/a/b.md": "[x](c.md), [y](../../f/README.md#d), `[z](../../code.md)`",
            "f/README.md": "[x](../docs/a/b.md), ![y](y.png), [z](../LICENSE)",
            "f/y.png": "",
            "LICENSE": "",
        },
    )
    assert outside(tmp_path) == ["LICENSE", "f/README.md", "f/y.png"]


@pytest.mark.parametrize("target", ["../gone.md", "../f", "../../gone.md", "/docs/index.md"])
def test_mkdocs_is_left_to_refuse_a_link_to_no_file_of_the_repository(tmp_path, target):
    root = tmp_path / "repository"
    _write(root, **{"docs/index.md": f"# All\n[x]({target})", "f/x.py": ""})
    config = MkDocsConfig()
    config.docs_dir = str(root / "docs")
    files = Files([])
    docs_site.on_files(files, config)
    assert not list(files)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# T\n\nOne [`a` page](a.md)\nsays it, e.g. so. Two.", "One `a` page says it, e.g. so."),
        ("# T\n```\ncode\n\nmore\n```\n\nAfter code:\n", "After code"),
        ("# T\n\n| a | b |\n|---|---|\n\n## U\nBelow a heading.", "Below a heading."),
        ("# T\n\n- item\n\n1. item\n\n![x](x.png)", ""),
    ],
)
def test_a_page_is_summed_up_by_its_first_sentence(text, expected):
    assert summary(text) == expected


def test_llms_txt_has_every_page_with_a_line_about_it():
    pages = {
        "index.md": ("Home", "# Home\n\nWhat it is. More."),
        "g/index.md": ("Guides", "# Guides\n\n| page | |\n|---|---|\n| [X](x.md) | how to x |\n"),
        "g/x.md": ("Do x", "# Do x\n\nFirst."),
        "g/y.md": ("Do y", "# Do y\n\nSecond. Third."),
    }
    nav = ["index.md", {"Guides": ["g/index.md", "g/x.md", "g/y.md"]}]
    assert llms("Name", "About it.", nav, pages) == (
        "# Name\n\n> About it.\n\n- [Home](index.md): What it is.\n\n## Guides\n\n"
        "- [Guides](g/index.md)\n- [Do x](g/x.md): how to x\n- [Do y](g/y.md): Second.\n"
    )


@pytest.mark.parametrize("page", [*PAGES, *OUTSIDE])
def test_a_page_has_the_lists_and_tables_that_github_shows(page):
    text = (ROOT / page).read_text()
    config = MkDocsConfig()
    config.markdown_extensions = ["tables", "sane_lists", "pymdownx.superfences"]
    docs_site.on_config(config)
    built = Markdown(extensions=config.markdown_extensions).convert(text)
    assert _counted(built) == _counted(MarkdownIt("gfm-like", {"linkify": False}).render(text))


def _counted(html):
    return Counter(re.findall(r"<(ol|ul|li|table|tr|h[1-6]|blockquote)\b", html))
