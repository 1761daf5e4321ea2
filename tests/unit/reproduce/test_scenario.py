"""Counts of scenarios, and their verdicts."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.errors import InvalidUse
from pulsar_ext.reproduce import SCENARIOS, Counts, Env, Place, Verdict, carry_out, judge, select
from pulsar_ext.testing import PROFILES

_LABELS = st.lists(st.sampled_from("abcdef"), max_size=12)
_BAD = [Counts(sent=1, lost=1), Counts(sent=1, duplicated=1), Counts(sent=1, stuck=1), Counts(ended="hung")]


@given(_LABELS.map(set), _LABELS)
def test_counts_add_up(sent, received):
    """Sent messages are delivered or lost, and received ones are delivered or duplicated."""
    counts = Counts.of(sent, received)
    assert counts.sent == len(sent) == counts.delivered + counts.lost
    assert len(received) == counts.delivered + counts.duplicated
    assert counts.clean == (sorted(sent) == sorted(received))


@pytest.mark.parametrize("bad", _BAD)
def test_any_fault_of_pulsar_ext_is_broken(bad):
    """A lost, duplicated or stuck message, or a bad end, of `pulsar_ext` is BROKEN for any official result."""
    for official in (*_BAD, Counts(sent=1, delivered=1), Counts(ended="error: no")):
        assert judge(official, bad) is Verdict.BROKEN


@pytest.mark.parametrize("bad", _BAD)
def test_fault_of_the_official_client_only_is_fixed_here(bad):
    """A fault of the official client only means that the defect is fixed here."""
    assert judge(bad, Counts(sent=1, delivered=1)) is Verdict.FIXED_HERE


def test_both_clean_is_fixed_upstream():
    """Clean counts of both clients mean that the official release fixed the defect."""
    assert judge(Counts(sent=1, delivered=1), Counts(sent=1, delivered=1)) is Verdict.FIXED_UPSTREAM


def test_steps_that_failed_prove_nothing():
    """An error in the official client's steps is inconclusive."""
    assert judge(Counts(ended="error: TypeError: no"), Counts(sent=1, delivered=1)) is Verdict.INCONCLUSIVE


def test_row_that_cannot_run_has_the_reason():
    """On a broker that lacks what a scenario needs, the row is not run and has the reason."""
    place = Place("pulsar://h:1", "http://h:1", "t/n", why_not="cannot run on this broker: X is off")
    row = carry_out(SCENARIOS["sequence-id-zero"], place)
    assert (row.verdict, str(row.ours)) == (Verdict.NOT_RUN, "fine (cannot run on this broker: X is off)")


@pytest.mark.parametrize("chunk_bytes", [102_400, 5 << 20, 12 << 20])
def test_large_chunks_are_few(chunk_bytes):
    """A message has the requested number of chunks if they are small, and a few if they are large."""
    env = Env(Place("pulsar://h:1", "http://h:1", "t/n", chunk_bytes))
    assert len(env.chunked("m", 200)) <= max(24 << 20, 3 * chunk_bytes)
    assert len(env.chunked("m", 200)) > 2 * chunk_bytes
    assert len(env.chunked("m", 3)) == int(2.5 * (chunk_bytes - 10 * 1024))


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (Counts(sent=3, delivered=2, lost=1), "1 of 3 lost"),
        (Counts(sent=3, delivered=3), "3 of 3"),
        (Counts(), "fine"),
        (Counts(sent=20, lost=19, ended="hung"), "hung, 19 of 20 lost"),
        (Counts(sent=3, delivered=3, stuck=3, note="6 chunks"), "3 of 3 stuck (6 chunks)"),
        (Counts(sent=4, lost=1, duplicated=2), "1 of 4 lost, 2 of 4 duplicated"),
    ],
)
def test_counts_as_text(counts, text):
    """The text names every fault, a bad end first."""
    assert str(counts) == text


def test_counts_survive_json():
    """Counts are equal after a round trip through JSON."""
    counts = Counts(sent=3, delivered=1, lost=1, duplicated=4, stuck=1, note="n", ended="hung")
    assert Counts(**json.loads(json.dumps(counts.to_dict()))) == counts


def test_every_scenario_is_well_declared():
    """Each has its own name, an existing profile and a claim of one line; those of one profile are adjacent."""
    profiles = [scenario.profile for scenario in SCENARIOS.values()]
    assert set(profiles) <= set(PROFILES)
    assert sum(one != two for one, two in pairwise(profiles)) == len(set(profiles)) - 1
    for name, scenario in SCENARIOS.items():
        assert scenario.name == name
        assert "\n" not in scenario.claim
        assert scenario.run.__module__.rpartition(".")[2] == name.replace("-", "_")


def test_unknown_name_lists_the_known_ones():
    """An unknown name raises an error with every known name."""
    with pytest.raises(InvalidUse) as caught:
        select(["chunk-seek", "chunk-sek"])
    assert "chunk-sek;" in str(caught.value)
    assert all(name in str(caught.value) for name in SCENARIOS)


def test_selection_keeps_the_order_of_the_table():
    """Names in any order, also repeated, select each scenario once, in the order of the table."""
    names = list(SCENARIOS)
    assert [scenario.name for scenario in select([names[4], names[0], names[4]])] == [names[0], names[4]]
    assert [scenario.name for scenario in select([])] == names
