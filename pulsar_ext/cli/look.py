"""`pulsar-ext look`: a topic as a map, in the terminal or as a page."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from pulsar_ext.errors import InvalidUse
from pulsar_ext.look.page import survey_page
from pulsar_ext.look.survey import MapLimits, survey

from .arguments import LOCAL_URL, Access, AdminUrl, Json, Url
from .connection import open_admin
from .output import print_result, write_page
from .topic_picture import SurveyPicture

app = App(name="look", help="Show a topic as a map: ledgers, cursors, holes, chunked messages, batches; reads only.")

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
    """Look at a topic and draw it, each partition by itself, with what the doctor finds.

    Args:
        topic: with or without partitions.
        subscription: the one to look at; all by default.
        html: the page to write, which needs nothing beside it.
        limits: what is a finding, and what the look may cost.
        watch: look again and again, until Ctrl-C; with --json, a line each time.
        every: seconds between two looks.
        url: the broker, for its usual admin port.
        admin_url: its admin REST API.
        access: what it gets in with.
        as_json: print one JSON object instead of a picture.
    """
    if every <= 0:
        raise InvalidUse(f"--every must be more than 0 seconds, not {every!r}")
    console = Console(highlight=False)
    with open_admin(url, admin_url, access) as admin:
        while True:
            with Console(stderr=True).status("asking"):
                seen = survey(admin, topic, subscription, limits)
            if html is not None:
                when = datetime.now().astimezone().isoformat(" ", "seconds")
                write_page(html, survey_page(seen, topic, when, refresh_seconds=every if watch else None))
            if as_json:
                print_result(json.dumps(seen.to_dict(), ensure_ascii=False))
            else:
                if watch:
                    console.clear()
                console.print(SurveyPicture(seen))
            if not watch:
                return
            time.sleep(every)
