"""The documentation as a site: the hooks of ``mkdocs.yml``, run by ``make docs``.

Links of pages lead to files outside of ``docs/`` too. The site has these below ``repository/``:
Markdown as pages, other files as they are. The index pages say which pages there are, in which
order. Programs that read find ``llms.txt`` and the Markdown of each page beside it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from markdown.extensions import Extension
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from markdown import Markdown
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

#: The site's folder for files outside of ``docs/``.
OUTSIDE: Final = "repository/"
#: The target of a link; code is skipped.
_LINK: Final = re.compile(r"(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|(?<=\]\()[^)\s]+", re.DOTALL)
_FENCED: Final = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
#: A row of an index page: a page, and its subject.
_ROW: Final = re.compile(r"^\| \[[^]]+\]\(([^)]+)\) \| (.+) \|$", re.MULTILINE)
#: The beginning of a block that is no paragraph.
_NO_TEXT: Final = re.compile(r"[|>]|<!--|!\[|[-*] |\d+\. | {4}")


def placed(path: str) -> str:
    """Return the site's path of a file of the repository.

    No page outside of ``docs/`` is an index: README.md of a folder would be one of its section.
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return OUTSIDE + re.sub(r"(^|/)README\.md$", r"\1readme.md", path)


def relinked(text: str, path: str) -> str:
    """Return the text of a page with links to the site's files.

    Args:
        text: Markdown.
        path: the page's path in the repository.
    """

    def written(found: re.Match[str]) -> str:
        target = found[0]
        if not _is_file(target):
            return target
        name, hash_, anchor = target.partition("#")
        to = placed(_joined(path, name))
        return posixpath.relpath(to, posixpath.dirname(placed(path)) or ".") + hash_ + anchor

    return _LINK.sub(written, text)


def outside(root: Path) -> list[str]:
    """Return the files outside of ``docs/`` that pages lead to.

    Missing files are left out: mkdocs names links that lead to no file of the site.

    Args:
        root: the repository.
    """
    todo = sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))
    found = set()
    for page in todo:  # grows
        for name in _links((root / page).read_text(encoding="utf-8")):
            path = _joined(page, name)
            if path in found or path.startswith(("docs/", "../")) or not (root / path).is_file():
                continue
            found.add(path)
            if path.endswith(".md"):
                todo.append(path)
    return sorted(found)


def navigation(docs: Path, more: Iterable[str]) -> list[Any]:
    """Return pages and sections as the index pages order them; titles come from the pages.

    Args:
        docs: the folder of the pages.
        more: pages outside of it, by their place in the site.
    """
    first = _pages(docs, "index.md")
    nav: list[Any] = ["index.md", *(page for page in first if "/" not in page)]
    for folder in dict.fromkeys(page.split("/")[0] for page in first if "/" in page):
        index = f"{folder}/index.md"
        title, pages = folder.capitalize(), first
        if (docs / index).is_file():
            heading = (docs / index).read_text(encoding="utf-8").partition("\n")[0]
            title, pages = heading.removeprefix("# "), [index, *_pages(docs, index)]
        nav.append({title: [page for page in pages if page.startswith(f"{folder}/")]})
    nav.append({"Repository": list(more)})
    return nav


def summary(text: str) -> str:
    """Return the first sentence of a page, without its links."""
    for block in re.split(r"\n\s*\n", _FENCED.sub("\n\n", text)):
        told = re.sub(r"^#+ .*$", "", block, flags=re.MULTILINE).strip("\n")
        if told and not _NO_TEXT.match(told):
            line = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(told.split()))
            return re.split(r"(?<=[.?!])\s+(?=[A-Z`])", line)[0].removesuffix(":")
    return ""


def llms(name: str, about: str, nav: Iterable[Any], pages: dict[str, tuple[str, str]]) -> str:
    """Return the text of ``llms.txt``, see https://llmstxt.org.

    A page is described by its row in an index page, or else by its first sentence.

    Args:
        name: of the project.
        about: it, in a sentence.
        nav: what ``navigation`` returned.
        pages: title and Markdown of each page by its place in the site.
    """
    described = {
        _joined(uri, target): words
        for uri, (_, text) in pages.items()
        if posixpath.basename(uri) == "index.md"
        for target, words in _ROW.findall(text)
    }
    lines = [f"# {name}", "", f"> {about}"]
    for title, uris in _sections(nav):
        lines += ["", f"## {title}", ""] if title else [""]
        for uri in uris:
            told = described.get(uri) or summary(pages[uri][1])
            lines.append(f"- [{pages[uri][0]}]({uri})" + (f": {told}" if told else ""))
    return "\n".join(lines) + "\n"


class _TwoSpaces(Extension):  # type: ignore[misc] # markdown ships no types
    """Content of lists is indented by two spaces or more, as on GitHub, rather than by four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - its name there
        md.tab_length = 2
        md.build_parser()


def on_config(config: MkDocsConfig) -> None:
    """Read lists as GitHub does; before other extensions, since they take their places in it."""
    config.markdown_extensions.insert(0, _TwoSpaces())


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the files outside of ``docs/``, and order the pages."""
    docs = Path(config.docs_dir)
    found = outside(docs.parent)
    for path in found:
        source = str(docs.parent / path)
        files.append(File.generated(config, placed(path), abs_src_path=source))
    config.nav = navigation(docs, [placed(path) for path in found if path.endswith(".md")])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page."""
    source = Path(page.file.abs_src_path or "")
    return relinked(markdown, source.relative_to(Path(config.docs_dir).parent).as_posix())


def on_env(env: Any, config: MkDocsConfig, files: Files) -> None:
    """Write what programs read: llms.txt, all pages in one file, and each page's Markdown."""
    site = Path(config.site_dir)
    pages = {}
    for file in files.documentation_pages():
        assert file.page is not None
        pages[file.src_uri] = (str(file.page.title), file.page.markdown or "")
    for uri, (_, text) in pages.items():
        (site / uri).parent.mkdir(parents=True, exist_ok=True)
        (site / uri).write_text(text, encoding="utf-8")
    nav = config.nav or []
    short = llms(config.site_name, config.site_description or "", nav, pages)
    (site / "llms.txt").write_text(short, encoding="utf-8")
    ordered = [uri for _, uris in _sections(nav) for uri in uris]
    full = "\n".join(f"<!-- {uri} -->\n{pages[uri][1].strip()}\n" for uri in ordered)
    (site / "llms-full.txt").write_text(full, encoding="utf-8")


def _is_file(target: str) -> bool:
    """Whether the match leads to another file here, and is not code, say."""
    return not target.startswith(("#", "`", "/", "mailto:")) and "://" not in target


def _links(text: str) -> Iterator[str]:
    """Yield the files that a page links to, as they stand there."""
    for found in _LINK.finditer(text):
        if _is_file(found[0]):
            yield found[0].partition("#")[0]


def _joined(page: str, name: str) -> str:
    """Return the path of a file that a page names by a relative path."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), name))


def _pages(docs: Path, index: str) -> list[str]:
    """Return the pages that an index links to, once each and in its order."""
    text = (docs / index).read_text(encoding="utf-8")
    paths = (_joined(index, name) for name in _links(text) if name.endswith(".md"))
    return list(dict.fromkeys(path for path in paths if not path.startswith("../")))


def _sections(nav: Iterable[Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield titles and pages of what ``navigation`` returned; pages of no section have no title."""
    alone = [entry for entry in nav if isinstance(entry, str)]
    if alone:
        yield "", alone
    for entry in nav:
        if isinstance(entry, dict):
            yield from entry.items()
