"""`pulsar-ext ranges`, as an operator runs it, on a real broker."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from commands import call_command
from keyed import fill
from reach import Reach

import pulsar_ext as pulsar
from pulsar_ext import KeyHashRanges, KeySharedPolicy, auto_split_slot, key_slot
from pulsar_ext.key_shared.coverage import UncoveredSlotsWarning

# The warning is about the kinds of batches that these tests send.
pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")


def ranges(*arguments, broker=None):
    """Call the command and return its exit status, output and error output."""
    return call_command("ranges", *arguments, *([] if broker is None else Reach.of(broker).command_line()))


@pytest.mark.core
def test_slot_of_keys():
    """The slot of each key is printed, also of bytes in base64; invalid base64 is an error of one line."""
    assert ranges("slot", "key1", "") == (0, "  293 key1\n    1 \n", "")
    assert ranges("slot", "中文", "--json")[1] == '[{"key": "中文", "slot": 29079}]\n'
    assert ranges("slot", "key1", "--auto-split") == (0, f"{auto_split_slot('key1'):>5} key1\n", "")
    assert ranges("slot", "--base64", "//4AAQI=")[1] == "50950 //4AAQI=\n"
    status, _, error = ranges("slot", "--base64", "no!")
    assert (status, error.count("\n")) == (1, 1)


@pytest.mark.core
def test_split_covers_every_slot():
    """The parts of an even split can be parsed and cover every slot."""
    _, printed, _ = ranges("split", "7")
    assert [KeyHashRanges.parse(line) for line in printed.split()] == KeyHashRanges.full().split(7)
    assert ranges("split", "0")[0] == 1


@pytest.mark.core
@pytest.mark.parametrize("partitions", [0, 2])
def test_plan_weighs_the_messages(client, pulsar_topic_factory, broker, tmp_path, monkeypatch, partitions):
    """The plan's weights are those of the topic's messages in any batches, and the picture and page are written."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    topic = pulsar_topic_factory(broker=broker, partitions=partitions)
    keys = fill(client, topic, "default", 500)
    status, printed, _ = ranges("plan", topic, "4", "--json", broker=broker)
    assert status == 0
    rows = json.loads(printed)
    for row in rows:
        part = KeyHashRanges.parse(row["ranges"])
        assert row["messages"] == sum(key_slot(key) in part for key in keys)
    assert sum(row["messages"] for row in rows) == 500
    assert (tmp_path / "ranges.png").read_bytes().startswith(b"\x89PNG")
    html = ["--no-png", "--html", "plan.html"]
    _, printed, _ = ranges("plan", topic, "4", *html, broker=broker)
    slots, owners, *table = printed.splitlines()
    assert any(rows[0]["ranges"] in line for line in table)
    assert [int(one) for one in owners.split()] == [0, 1, 2, 3]
    width = len(owners)
    filled = {key_slot(key) * width // 65536 for key in keys}
    assert {at for at, mark in enumerate(slots) if mark != " "} == filled
    page = ET.fromstring((tmp_path / "plan.html").read_text(encoding="utf-8").removeprefix("<!doctype html>"))
    shown = [["".join(cell.itertext()) for cell in row] for row in page.findall(".//table[@class='plan']/tbody/tr")]
    assert [(row[1], int(row[2])) for row in shown] == [(row["ranges"], row["messages"]) for row in rows]
    bars = page.findall(".//figure//rect")
    assert {int(bar.get("x")) for bar in bars} == {key_slot(key) // 256 for key in keys}
    _, table, _ = ranges("plan", topic, "4", "--by", "bytes", "--no-png", broker=broker)
    assert rows[0]["ranges"].split("-")[0] in table


def test_impossible_plan_is_reported_in_one_line(broker, topic):
    """A missing topic and an invalid number of parts are errors of one line; nothing is created."""
    for parts, words in (("4", "not found"), ("0", "parts")):
        status, _, error = ranges("plan", topic, parts, broker=broker)
        assert status == 1
        assert words in error


@pytest.mark.core
@pytest.mark.through
def test_check_reports_coverage(client, broker, topic):
    """Covered and uncovered slots are printed, and the exit status is 0 only for complete coverage."""
    builder = client.new_consumer().topic(topic).subscription_name("s")
    with pytest.warns(UncoveredSlotsWarning):
        first = builder.key_shared_policy(KeySharedPolicy.sticky_hash_range().ranges("0-99")).subscribe()
    status, printed, _ = ranges("check", topic, "s", "--json", broker=broker)
    [facts] = json.loads(printed)
    assert status == 1
    assert (facts["covered"], facts["uncovered"], facts["overlapping"]) == ("0-99", "100-65535", "")
    printed = ranges("check", topic, "s", broker=broker)[1]
    assert "stall" in printed
    assert "░" * 78 in printed.splitlines()[0]
    other = client.new_consumer().topic(topic).subscription_name("s")
    second = other.key_shared_policy(KeySharedPolicy.sticky_hash_range().ranges("100-65535")).subscribe()
    assert ranges("check", topic, "s", broker=broker)[0] == 0
    first.close()
    second.close()
    assert "No consumer" in ranges("check", topic, "s", broker=broker)[1]


def test_page_of_a_check_has_every_consumer(client, broker, topic, tmp_path):
    """The page has each consumer's slots as the broker splits them."""
    consumers = [
        client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, consumer_name=name) for name in ("one", "two")
    ]
    status, printed, _ = ranges("check", topic, "s", "--json", "--html", str(tmp_path / "cover.html"), broker=broker)
    assert status == 0
    expected = {one["name"]: KeyHashRanges.parse(one["ranges"]) for one in json.loads(printed)[0]["consumers"]}
    page = ET.fromstring((tmp_path / "cover.html").read_text(encoding="utf-8").removeprefix("<!doctype html>"))
    rows = {row.get("data-row"): row for row in page.findall(".//figure/div")}
    assert sorted(expected) == ["one", "two"]
    for name, slots in expected.items():
        bars = [(int(bar.get("x")), int(bar.get("width"))) for bar in rows[name].findall(".//rect")]
        assert KeyHashRanges((start, start + width - 1) for start, width in bars) == slots
    for consumer in consumers:
        consumer.close()


def test_check_of_a_key(client, broker, topic):
    """A key is shown with its slot by the numbering of the subscription, and its consumer."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, consumer_name="me")
    status, printed, _ = ranges("check", topic, "s", "--whose", "key1", "--whose", "[中文]", "--json", broker=broker)
    assert status == 0
    assert json.loads(printed)[0]["keys"] == [
        {"key": key, "slot": auto_split_slot(key), "consumers": ["me"]} for key in ("key1", "[中文]")
    ]
    printed = ranges("check", topic, "s", "--whose", "[中文]", broker=broker)[1]
    assert f"slot {auto_split_slot('[中文]')}" in next(line for line in printed.splitlines() if "[中文]" in line)
    consumer.close()


def test_check_without_a_key_shared_subscription(client, broker, topic):
    """A subscription of another type, or a missing one, is an error of one line."""
    client.subscribe(topic, "plain", consumer_type=pulsar.ConsumerType.Shared)
    for name, words in (("plain", "Key_Shared"), ("none", "not found")):
        status, _, error = ranges("check", topic, name, broker=broker)
        assert status == 1
        assert words in error


@pytest.mark.core
def test_names_are_not_markup(client, pulsar_topic_factory, broker):
    """Names of a subscription and a consumer, and a key, are printed unchanged, also with brackets."""
    topic = pulsar_topic_factory(broker=broker)
    subscription, name, key = "[red]s[/]", "[/c]", "[bold]k[/bold]"
    client.subscribe(topic, subscription, pulsar.ConsumerType.KeyShared, consumer_name=name)
    status, printed, error = ranges("check", topic, subscription, "--whose", key, broker=broker)
    assert (status, error) == (0, "")
    assert all(text in printed for text in (subscription, name, key))
