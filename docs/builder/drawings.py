"""Draw the pictures of docs/drawings: `python -m docs.builder.drawings` writes them as SVG."""

from __future__ import annotations

from html import escape

from .pages import ROOT

__all__ = ["DRAWINGS", "draw"]

_GREY, _BLUE, _GREEN, _RED, _AMBER = "#e8ebf0", "#cfe0fb", "#cdebd3", "#f8d0d0", "#fbe6bd"
_INK, _SOFT = "#1f2937", "#5b6675"
_WIDTH = 820


class Drawing:
    """A picture whose elements are placed by hand.

    Args:
        height: in pixels.
        title: alternative text of the picture.
    """

    def __init__(self, height: int, title: str) -> None:
        self._parts: list[str] = []
        self._height, self._title = height, title

    def box(self, x: int, y: int, width: int, text: str, colour: str = _GREY, *, height: int = 38) -> None:
        """Draw a box with a centred text, which may have line breaks."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{colour}" stroke="{_SOFT}"/>'
        )
        lines = text.split("\n")
        for number, line in enumerate(lines):
            at = y + height / 2 + 4.5 + (number - (len(lines) - 1) / 2) * 16
            self._text(x + width / 2, at, line, anchor="middle")

    def row(self, x: int, y: int, texts: list[str], colours: list[str], *, width: int = 86) -> None:
        """Draw boxes side by side."""
        for number, (text, colour) in enumerate(zip(texts, colours, strict=True)):
            self.box(x + number * (width + 6), y, width, text, colour)

    def heading(self, y: int, text: str) -> None:
        """Write the heading of a part."""
        self._text(16, y, text, weight="bold")

    def note(self, x: int, y: int, text: str, colour: str = _SOFT) -> None:
        """Write a line of text."""
        self._text(x, y, text, colour=colour)

    def arrow(self, x: int, y: int, to_x: int, to_y: int, colour: str = _INK, *, dashed: bool = False) -> None:
        """Draw an arrow."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{colour}" stroke-width="1.8"{dash} '
            f'marker-end="url(#head)"/>'
        )

    def line(self, x: int, y: int, to_x: int, to_y: int, colour: str = _SOFT) -> None:
        """Draw a line."""
        self._parts.append(f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{colour}" stroke-width="1.4"/>')

    def _text(
        self, x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", colour: str = _INK
    ) -> None:
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">'
            f"{escape(text)}</text>"
        )

    def svg(self) -> str:
        """Return the picture as SVG."""
        head = (
            '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{_INK}"/></marker>'
        )
        begin = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {self._height}" role="img" '
            'font-family="system-ui, sans-serif" font-size="13.5">'
        )
        ground = f'<rect width="{_WIDTH}" height="{self._height}" rx="8" fill="#ffffff"/>'
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join([begin, title, f"<defs>{head}</defs>", ground, *self._parts, "</svg>", ""])


def _chunks() -> Drawing:
    one = Drawing(
        560, "A seek to a chunked message by its stored numbers, with the official client and with pulsar_ext"
    )
    texts = ["5:0\nmessage A", "5:1\nB, 1 of 3", "5:2\nB, 2 of 3", "5:3\nB, 3 of 3", "5:4\nmessage C"]
    colours = [_GREY, _BLUE, _BLUE, _BLUE, _GREY]
    one.heading(30, "1. On the topic: message B is three entries. Your table has its id as (5, 3).")
    _entries(one, 46, texts, colours)
    one.heading(140, "2. The official client seeks to 5:3.")
    _entries(one, 156, texts, [_GREY, _GREY, _GREY, _RED, _GREEN])
    one.arrow(410, 226, 410, 204)
    one.note(424, 226, "the first entry read")
    one.note(
        16, 256, "Chunk 3 arrives without chunks 1 and 2. The message cannot be assembled, and is dropped.", "#b42318"
    )
    one.note(16, 276, "The next message is C. No error reports that B is missing.", "#b42318")
    one.heading(320, "3. pulsar_ext asks the admin API for the headers of 5:3, and then of the entries before it.")
    _entries(one, 336, texts, [_GREY, _BLUE, _AMBER, _AMBER, _GREY])
    one.note(380, 402, '"3 of 3 of B"')
    one.note(258, 402, '"2 of 3 of B"')
    one.arrow(375, 412, 300, 412)
    one.arrow(254, 412, 180, 412)
    one.heading(450, "4. It seeks to 5:1, where B begins.")
    _entries(one, 466, texts, [_GREY, _GREEN, _GREEN, _GREEN, _GREEN])
    one.arrow(164, 536, 164, 514)
    one.note(178, 536, "the first entry read: B is delivered whole, and then C", "#16703a")
    return one


def _entries(one: Drawing, y: int, texts: list[str], colours: list[str]) -> None:
    for number, (text, colour) in enumerate(zip(texts, colours, strict=True)):
        one.box(16 + number * 122, y, 112, text, colour, height=46)


def _batches() -> Drawing:
    one = Drawing(470, "Deduplication of batches: the official client's batch is dropped with its new messages")
    one.heading(30, "The producer has sent 1 to 6. After a restart it sends 1 to 13, to be safe.")
    one.box(16, 46, 300, "on the topic: 1 2 3 4 5 6", _BLUE)
    one.note(332, 70, "the broker's last id of this producer: 6")
    one.heading(124, "The official client: one batch, with the id of its first message")
    one.box(16, 140, 430, "id 1  |  1 2 3 4 5 6 7 8 9 10 11 12 13", _RED)
    one.arrow(452, 159, 520, 159)
    one.box(526, 140, 214, "1 is not above 6: dropped", _RED)
    one.note(16, 204, "Messages 7 to 13 are lost, and all 13 are reported as sent.", "#b42318")
    one.heading(254, "pulsar_ext: stored messages are answered at once, and the others are a batch of their own")
    one.box(16, 270, 210, "1 2 3 4 5 6", _AMBER)
    one.arrow(232, 289, 300, 289)
    one.box(306, 270, 260, "DuplicateMessage, nothing is sent", _AMBER)
    one.box(16, 322, 300, "id 13  |  7 8 9 10 11 12 13", _GREEN)
    one.arrow(322, 341, 390, 341)
    one.box(396, 322, 344, "13 is above 6: stored; the last id is 13", _GREEN)
    one.note(
        16,
        392,
        "A batch is one entry, stored whole or not at all. So if it has its highest id, the broker's last id",
    )
    one.note(16, 412, "shows exactly which messages are stored. That only works if nothing else splits the")
    one.note(16, 432, "batch, so pulsar_ext builds its batches itself.")
    return one


def _acknowledgements() -> Drawing:
    one = Drawing(500, "The path of an acknowledgement from the application to the broker's cursor, and back")
    one.box(16, 24, 180, "acknowledge(message)", _GREEN)
    one.note(210, 48, "records the message and returns, in less than a microsecond")
    one.arrow(106, 62, 106, 92)
    one.box(16, 94, 180, "inbox", _GREY)
    one.note(210, 118, "in memory, until the group is full or 100 ms have passed")
    one.arrow(106, 132, 106, 162)
    one.box(16, 164, 180, "tracker", _AMBER)
    one.note(210, 178, "tracks the acknowledged messages of a batch, and chunks of a message:")
    one.note(210, 197, "an entry is sent when all of it is")
    one.arrow(106, 202, 106, 232)
    one.box(16, 234, 180, "C++ client", _BLUE)
    one.note(210, 258, "one frame for a whole group")
    one.arrow(106, 272, 106, 332)
    one.box(16, 334, 180, "broker's cursor", _BLUE)
    one.row(
        210, 290, ["0", "1", "2", "3", "4", "5", "6", "7"], [*[_GREEN] * 3, _RED, *[_GREEN] * 2, *[_GREY] * 2], width=40
    )
    one.note(590, 314, "entries of the topic")
    one.line(344, 334, 344, 348)
    one.note(210, 364, "mark-delete position: up to 2 acknowledged; 3 is a hole; 4 and 5 acknowledged")
    one.arrow(106, 372, 106, 412)
    one.box(16, 414, 180, "in flight", _GREY)
    one.note(210, 428, "acknowledgements of the last second are kept, and resent if the connection ends")
    one.note(210, 447, "flush_acks(confirm=True) asks the admin API for the cursor, and resends what")
    one.note(210, 466, "it does not show, until it shows everything")
    return one


def _epochs() -> Drawing:
    one = Drawing(330, "Epochs: messages received before a seek are not delivered after it")
    one.heading(30, "A seek, a redelivery or a reset of the cursor begins a new epoch.")
    one.line(16, 92, 744, 92)
    one.box(30, 52, 300, "epoch 1", _BLUE, height=28)
    one.box(376, 52, 350, "epoch 2", _GREEN, height=28)
    one.line(352, 44, 352, 300)
    one.note(318, 318, "seek to message 3")
    one.row(40, 110, ["7", "8", "9"], [_BLUE] * 3, width=44)
    one.note(200, 134, "received")
    one.row(40, 166, ["10", "11"], [_BLUE] * 2, width=44)
    one.note(150, 190, "fetched ahead")
    one.arrow(330, 184, 400, 184, dashed=True)
    one.note(408, 190, "discarded: they are of epoch 1", "#b42318")
    one.row(376, 110, ["3", "4", "5"], [_GREEN] * 3, width=44)
    one.note(536, 134, "delivered next")
    one.row(40, 222, ["ack of 8"], [_AMBER], width=92)
    one.note(148, 246, "pending, not sent")
    one.arrow(330, 240, 400, 240, dashed=True)
    one.note(408, 238, "sent before the seek: a subscriber of transitions gets")
    one.note(408, 257, "on_before, then on_after or on_abandon")
    return one


def _fetching() -> Drawing:
    one = Drawing(390, "Fetching ahead: one call into the C++ client returns many messages")
    one.heading(30, "The official client: each receive() is a call from Python into C++")
    one.box(16, 46, 170, "receiver queue (C++)", _BLUE)
    for number in range(4):
        one.arrow(190, 54 + number * 8, 330, 54 + number * 8)
    one.box(336, 46, 170, "application", _GREY)
    one.note(520, 70, "1,500 to 2,300 ns a message")
    one.heading(130, "pulsar_ext, when messages are received quickly: one call for up to 400")
    one.box(16, 146, 170, "receiver queue (C++)", _BLUE)
    one.arrow(190, 165, 250, 165)
    one.box(256, 146, 170, "fetched ahead", _AMBER)
    for number in range(4):
        one.arrow(430, 154 + number * 8, 490, 154 + number * 8)
    one.box(496, 146, 170, "application", _GREY)
    one.note(256, 206, "at most a quarter of the queue, 400 messages or 1 MB")
    one.heading(256, "When processing a message takes long, nothing is fetched ahead")
    one.note(
        16,
        280,
        "An application slower than ten microseconds a message gets them one by one, so that other consumers",
    )
    one.note(16, 300, "of a Shared subscription do not wait for messages that are fetched ahead here.")
    one.note(
        16,
        334,
        "A seek, a redelivery and close() discard fetched-ahead messages. To the broker they are delivered and not",
    )
    one.note(16, 354, "acknowledged, like everything in the receiver queue.")
    return one


DRAWINGS = {
    "chunks": _chunks,
    "batches": _batches,
    "acknowledgements": _acknowledgements,
    "epochs": _epochs,
    "fetching-ahead": _fetching,
}
"""The drawings, by page."""


def draw(name: str) -> str:
    """Return a drawing as SVG."""
    return DRAWINGS[name]().svg()


def main() -> None:
    """Write every drawing beside its page."""
    for name in DRAWINGS:
        (ROOT / "docs" / "drawings" / f"{name}.svg").write_text(draw(name), encoding="utf-8")


if __name__ == "__main__":
    main()
