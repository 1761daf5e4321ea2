"""`pulsar-ext look`: a topic as a map, in the terminal or as a page."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from pulsar_ext.look.page import survey_page
from pulsar_ext.look.survey import MapLimits, survey

from .arguments import LOCAL_URL, Access, AdminUrl, Json, Url
from .connection import open_admin
from .output import check_place, now_text, print_json, write_page
from .topic_picture import SurveyPicture
from .watching import check_pause, look_again

app = App(name="look", help="Show a topic as a map: its ledgers, cursors, holes and messages. It only reads.")

_NOTHING = Access()
_LIMITS = MapLimits()


@app.default
def look(
    topic: str,
    /,
    *,
    subscription: str | None = None,
    html: Annotated[Path | None, Parameter(negative="")] = None,
    limits: Annotated[MapLimits, Parameter(name="*")] = _LIMITS,
    watch: Annotated[bool, Parameter(negative="")] = False,
    every: float = 5.0,
    url: Url = LOCAL_URL,
    admin_url: AdminUrl = None,
    access: Access = _NOTHING,
    as_json: Json = False,
) -> None:
    """Show a topic as a map, and what the doctor finds in it. It only reads.

    The map has the ledgers, the cursors with their holes, and the chunked messages and batches, of each partition.

    Args:
        topic: The topic, such as public/default/orders, with or without partitions.
        subscription: Name of the one subscription to show. The default is all of them.
        html: File for a page with the same map and the findings, which needs nothing beside it.
        limits: What counts as a finding, and what the look may cost.
        watch: Look again and again until Ctrl-C, also while the broker does not answer. With --json it prints one line
            each time.
        every: Seconds between two looks with --watch.
        url: URL of the broker. Only its host is used, to find the admin API.
        admin_url: URL of the admin REST API. The default is port 8080 on the broker's host.
        access: How to authenticate.
        as_json: Print one JSON object instead of a picture.
    """
    check_pause(every)
    check_place(html, "--html")
    console = Console(highlight=False)
    with open_admin(url, admin_url, access) as admin:

        def look_once() -> None:
            with Console(stderr=True).status("asking"):
                seen = survey(admin, topic, subscription, limits)
            if html is not None:
                write_page(html, survey_page(seen, topic, now_text(), refresh_seconds=every if watch else None))
            if as_json:
                print_json(seen.to_dict())
            else:
                if watch:
                    console.clear()
                console.print(SurveyPicture(seen))

        look_again(look_once, watch=watch, every=every)
