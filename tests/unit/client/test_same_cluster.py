"""Requests about a topic are recognised, so that their cluster is checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.client.same_cluster import topic_of
from pulsar_ext.ids.topic_name import TopicName


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: "/" not in name))
def test_topic_of_a_request_is_parsed(name):
    """Any topic name is parsed from the path of a request."""
    if name in {".", ".."}:
        return
    topic = TopicName("persistent", "t", "n", name)
    assert topic_of(f"{topic.rest_path}/stats") == topic


@pytest.mark.parametrize(
    "path",
    ["clusters", "brokers/health", "namespaces/t/n", "persistent/t/n", "persistent/t/n/partitioned", "", "a//b/c/d"],
)
def test_request_without_topic_is_not_checked(path):
    """Requests about namespaces, brokers and clusters are not checked."""
    assert topic_of(path) is None
