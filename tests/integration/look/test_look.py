"""`pulsar-ext look` on a real broker: page, terminal and JSON show the broker's state."""

from __future__ import annotations

import json
import subprocess
from itertools import islice, pairwise
from xml.etree import ElementTree as ET

import pytest
from acked import send_batches, send_plain
from chunked import drain, eventually, payload
from mending import SOON, namespace_of, pulsar_ext, watching

import pulsar_ext as pulsar
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

SOONER = "--hole-distance 3 --patience-seconds 0.2 --pause-seconds 0.2"


@pytest.fixture
def ids(client, admin, topic):
    """Fill two ledgers with single messages, batches and chunks; one cursor has two holes, one a backlog.

    Returns the ids of the two chunked messages.
    """
    fast = client.subscribe(topic, "fast", pulsar.ConsumerType.Shared, consumer_name="worker")
    client.subscribe(topic, "slow", pulsar.ConsumerType.Shared).close()
    send_plain(client, topic, 6)
    send_batches(client, topic, 2, 5)
    messages = drain(fast.receive, 16)
    fast.acknowledge_many([one for at, one in enumerate(messages) if at not in {2, 3, 5}])
    fast.flush_acks(confirm=True)
    admin.unload(topic)
    producer = client.create_producer(topic, "pictures", chunking_enabled=True)
    sent = [producer.send(payload(index)) for index in range(2)]
    end = Position(sent[-1].ledger_id(), sent[-1].entry_id())
    assert eventually(lambda: admin.internal_stats(topic).cursors["fast"].read_position > end)
    # The unload lost the acknowledgements of the first two messages; they are resent a moment later.
    assert eventually(lambda: admin.internal_stats(topic).cursors["fast"].mark_delete_position.entry_id == 1)
    return sent


def drawn(broker, topic, path, options=SOONER):
    """Draw the page, and return its elements."""
    status, _, error = pulsar_ext(broker, f"pulsar-ext look {topic} --html {path} {options}")
    assert status == 0, error
    return ET.fromstring(path.read_text(encoding="utf-8").removeprefix("<!doctype html>"))


def rows_of(page, kind):
    """Return the rows of a table as texts."""
    return [["".join(cell.itertext()) for cell in row] for row in page.findall(f".//table[@class='{kind}']/tbody/tr")]


def plain(position):
    """Return the ledger id and the entry id of a message id as text."""
    return f"{position.ledger_id()}:{position.entry_id()}"


@pytest.mark.core
def test_page_shows_the_state_of_the_broker(client, admin, broker, topic, ids, tmp_path):
    """Ledgers, kinds of entries, chunked messages, cursors, holes and findings are the broker's."""
    page = drawn(broker, topic, tmp_path / "look.html")
    internal = admin.internal_stats(topic)
    ledgers = [
        (int(one.get("data-ledger")), int(one.get("data-entries"))) for one in page.findall(".//*[@data-ledger]")
    ]
    assert ledgers == [one for one in internal.ledger_sizes() if one[1]]
    assert len(ledgers) == 2
    widths = [int(one.get("width")) for one in page.findall(".//*[@data-ledger]")]
    assert widths == [entries for _, entries in ledgers]  # to scale
    cursors = {one.get("data-cursor"): one for one in page.findall(".//*[@data-cursor]")}
    assert sorted(cursors) == ["fast", "slow"]
    for name, row in cursors.items():
        cursor = internal.cursors[name]
        assert row.get("data-mark-delete") == str(cursor.mark_delete_position)
        assert row.get("data-read") == str(cursor.read_position)
    first = ledgers[0][0]
    assert rows_of(page, "holes") == [
        ["fast", f"{first}:2", f"{first}:3", "2", "3"],
        ["fast", f"{first}:5", f"{first}:5", "1", "2"],
    ]
    assert [row[:3] for row in rows_of(page, "chunked")] == [
        [plain(one.first_chunk_message_id()), plain(one.last_chunk_message_id()), "3 of 3"] for one in ids
    ]
    counts = {
        kind: sum(int(one.get("width")) for one in page.findall(f".//rect[@class='{kind}']"))
        for kind in ("message", "batch", "chunk")
    }
    legend = 20  # its samples
    assert counts == {"message": 6 + legend, "batch": 2 + legend, "chunk": 6 + legend}
    found = client.diagnose(topic, limits=SOON).findings
    shown = [(one.get("data-kind"), one.get("data-subscription")) for one in page.findall(".//article")]
    assert ("holes", "fast") in shown
    assert sorted(shown) == sorted((one.kind, one.subscription) for one in found)


def test_page_loads_nothing(broker, topic, ids, tmp_path):
    """Elements load nothing, the page's policy forbids it, and both themes are in it."""
    page = drawn(broker, topic, tmp_path / "look.html")
    names = {name.rpartition("}")[2] for one in page.iter() for name in one.attrib}
    assert not names & {"src", "href", "srcset", "action", "data"}
    assert {one.tag for one in page.iter()}.isdisjoint({"script", "link", "img", "iframe", "object"})
    style = page.find(".//style").text
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style
    [policy] = [one.get("content") for one in page.findall(".//meta[@http-equiv]")]
    assert policy.startswith("default-src 'none'")


@pytest.mark.core
@pytest.mark.parametrize(
    ("encoding", "kinds", "fast", "slow"),
    [
        ("utf-8", "▂▂▂▂▂▂▅▅▓▓▓▓▓▓", "▁▁██▁█▁▁▆▆▆▆▆▆", "▄▄▄▄▄▄▄▄▄▄▄▄▄▄"),
        ("ascii", "mmmmmmbbcccccc", "__##_#__======", "--------------"),
    ],
    ids=["blocks", "letters"],
)
def test_terminal_shows_the_state_of_the_broker(monkeypatch, broker, topic, ids, encoding, kinds, fast, slow):
    """Each entry is drawn with its kind and its state for each cursor, in letters if only ASCII is available."""
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    _, printed, _ = pulsar_ext(broker, f"pulsar-ext look {topic} {SOONER}")
    lines = printed.splitlines()
    under = {line.split(" ")[0]: strip[::10] for line, strip in pairwise(lines)}
    assert (under["entries"], under["fast"], under["slow"]) == (kinds, fast, slow)
    assert any(line.startswith("holes: ") for line in lines)
    assert any(line.startswith("warning: holes  2 unacknowledged entries from") for line in lines)


def test_each_partition_is_drawn(client, broker, pulsar_topic_factory, tmp_path):
    """A topic of two partitions has a map of each, on the page and in JSON."""
    topic = pulsar_topic_factory(broker=broker, partitions=2)
    names = [str(TopicName.parse(topic).partition(index)) for index in range(2)]
    send_plain(client, names[1], 3)
    page = drawn(broker, topic, tmp_path / "look.html")
    assert [one.get("data-topic") for one in page.findall(".//section")] == names
    _, printed, _ = pulsar_ext(broker, f"pulsar-ext look {topic} --json {SOONER}")
    assert [(one["name"], one["entries"]) for one in json.loads(printed)["topics"]] == [(names[0], 0), (names[1], 3)]


@pytest.mark.core
def test_json_has_stretches_chunks_and_diagnosis(client, broker, topic, ids):
    """The JSON has the holes of each cursor, the chunked messages and the doctor's findings."""
    _, printed, _ = pulsar_ext(broker, f"pulsar-ext look {topic} --json {SOONER} --subscription fast")
    seen = json.loads(printed)
    [one] = seen["topics"]
    [cursor] = one["cursors"]
    assert (cursor["name"], cursor["consumers"]) == ("fast", ["worker"])
    assert [(hole["first"], hole["last"]) for hole in cursor["holes"]] == [(3, 4), (6, 6)]
    assert [message["chunks"] for message in one["chunked"]] == [
        {"9": 0, "10": 1, "11": 2},
        {"12": 0, "13": 1, "14": 2},
    ]
    assert {found["kind"] for found in seen["diagnosis"]["findings"]} >= {"holes"}


def test_watch_prints_a_line_each_time(client, broker, topic):
    """A watch prints a line of JSON each time until it is interrupted, with messages sent in between."""
    send_plain(client, topic, 1)
    command = f"pulsar-ext look {topic} --every 0.2 --pause-seconds 0"
    with watching(broker, command, stderr=subprocess.DEVNULL) as running:
        assert json.loads(running.stdout.readline())["topics"][0]["entries"] == 1
        send_plain(client, topic, 1)
        lines = islice(running.stdout, 50)
        assert any(json.loads(line)["topics"][0]["entries"] == 2 for line in lines)
    assert running.returncode == 130


def test_invalid_targets_end_with_one_line(admin, broker, topic, tmp_path):
    """A namespace, a missing topic and an unwritable page end with one line of error; nothing is created."""
    for arguments, words in (
        (namespace_of(topic), "is a namespace"),
        (topic, "not found"),
        (f"{topic} --every 0", "--every"),
    ):
        status, printed, error = pulsar_ext(broker, f"pulsar-ext look {arguments}")
        assert (status, printed, words in error) == (1, "", True), error
    assert admin.topics(namespace_of(topic)) == ()
    admin.create_topic(topic)
    status, _, error = pulsar_ext(broker, f"pulsar-ext look {topic} --html {tmp_path}/none/look.html {SOONER}")
    assert (status, "cannot be written" in error) == (1, True)


def test_look_changes_nothing(client, admin, broker, topic, ids, tmp_path):
    """Cursors are unchanged, and no subscription or reader remains."""

    def cursors_of(internal):
        marks = {name: (one.mark_delete_position, one.individually_deleted) for name, one in internal.cursors.items()}
        return marks, internal.last_confirmed_entry

    before = cursors_of(admin.internal_stats(topic))
    drawn(broker, topic, tmp_path / "look.html")
    assert cursors_of(admin.internal_stats(topic)) == before
