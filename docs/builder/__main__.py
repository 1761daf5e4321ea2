"""`python -m docs.builder`: gather the pages into .site/, build the site with Zensical, and check its links."""

from __future__ import annotations

import shutil
import subprocess
import sys

from .links import broken_links
from .pages import ROOT, gather
from .reference import write_reference
from .results import fault_totals, speed_picture
from .upstream import write_reports

_SITE = ROOT / ".site"
_OF_A_DOCSTRING = "griffe: "
"""Prefix of a warning about a docstring, which `--strict` ignores."""


def main() -> None:
    """Build the site into .site/html; exit with 1 after a warning or a broken link."""
    pages = _SITE / "pages"
    shutil.rmtree(_SITE, ignore_errors=True)
    pages.mkdir(parents=True)
    shutil.copyfile(ROOT / "docs" / "site.toml", _SITE / "zensical.toml")
    gather(pages, {"<!-- totals -->": fault_totals(), "speed.svg": ""})
    (pages / "speed.svg").write_text(speed_picture(), encoding="utf-8")
    write_reference(pages / "reference")
    write_reports(pages / "upstream")
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(build, cwd=_SITE, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(built.stdout, end="")  # noqa: T201  # it is the result
    if built.returncode or _OF_A_DOCSTRING in built.stdout:
        sys.exit("the site has the warnings above")
    if broken := broken_links(_SITE / "html"):
        sys.exit("\n".join(["these links lead nowhere:", *broken]))
    print(f"the site is in {_SITE.relative_to(ROOT) / 'html'}")  # noqa: T201  # it is the result


if __name__ == "__main__":
    main()
