"""The site builds without a warning or a broken link, and its reference has every public name."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("zensical")
pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # the builder is not in the package
    sys.path.insert(0, str(ROOT))

from pulsar_ext.cli import command_line  # noqa: E402  # after the checks
from pulsar_ext.testing import fixtures  # noqa: E402  # after the checks

main = importlib.import_module("docs.builder.__main__").main
drawings, links, names, reference = (
    importlib.import_module(f"docs.builder.{name}") for name in ("drawings", "links", "names", "reference")
)
HTML = ROOT / ".site" / "html"


@pytest.fixture(scope="module", autouse=True)
def site():
    """Build the site; a warning or a broken link fails."""
    main()


def text_of(page):
    return (HTML / "reference" / f"{page}.html").read_text()


def test_every_public_name_has_an_entry():
    """Each name of the package and of its public modules is on one page of the reference, under its own anchor."""
    on_pages = [name for page in names.PAGES for name in names.names_on(page)]
    assert sorted(on_pages) == sorted(names.public_names())
    for page in names.PAGES:
        text = text_of(page)
        assert [name for name in names.names_on(page) if f'id="{name}"' not in text] == []


def test_inherited_official_methods_have_entries():
    """An entry of a class has its inherited official methods."""
    assert 'id="pulsar_ext.Client.get_topic_partitions"' in text_of("client")
    assert 'id="pulsar_ext.Message.properties"' in text_of("messages")


def test_every_fixture_command_and_variable_has_an_entry():
    """Fixtures, commands, and environment variables are in the reference."""
    testing, commands, options = text_of("testing"), text_of("commands"), text_of("options")
    named = re.findall(r"^def (pulsar_\w+)", Path(fixtures.__file__).read_text(), re.MULTILINE)
    assert len(named) >= 13
    assert [name for name in named if f'id="{name}"' not in testing] == []
    known = [name for name in command_line() if not name.startswith("-")]
    assert len(known) >= 7
    assert [name for name in known if f"pulsar-ext-{name}" not in commands] == []
    source = "\n".join(file.read_text() for file in (ROOT / "pulsar_ext").rglob("*.py"))
    read = set(re.findall(r'"(PULSAR_(?:EXT_)?(?:URL|ADMIN_URL|TOKEN|[A-Z]+))"', source))
    assert read - reference.VARIABLES.keys() - {"PULSAR_MEM", "PULSAR_VERSION"} == set()
    assert [name for name in reference.VARIABLES if name not in options] == []


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_committed_drawings_are_current(name):
    """The committed picture equals the output of `python -m docs.builder.drawings`."""
    assert (ROOT / "docs" / "drawings" / f"{name}.svg").read_text() == drawings.draw(name)


def test_a_broken_link_is_found(tmp_path):
    """A missing page, anchor or picture is reported with the page that links to it."""
    (tmp_path / "a.html").write_text('<a href="b.html#x">b</a><a href="#y">y</a><img src="c.png"><h1 id="z">z</h1>')
    (tmp_path / "b.html").write_text('<a href="a.html#z">a</a><a href="https://pulsar.apache.org">elsewhere</a>')
    assert links.broken_links(tmp_path) == ["a.html: #y", "a.html: b.html#x", "a.html: c.png"]
