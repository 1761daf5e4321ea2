"""Which requests are about a topic, so that they are checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.client.same_cluster import topic_of
from pulsar_ext.ids.topic_name import TopicName


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: "/" not in name))
def test_every_request_about_a_topic_names_it(name):
    """Whatever a topic is called, the path that a request has is read back to it."""
    if name in {".", ".."}:
        return
    topic = TopicName("persistent", "t", "n", name)
    assert topic_of(f"{topic.rest_path}/stats") == topic


@pytest.mark.parametrize(
    "path",
    ["clusters", "brokers/health", "namespaces/t/n", "persistent/t/n", "persistent/t/n/partitioned", "", "a//b/c/d"],
)
def test_what_is_about_no_topic(path):
    """Requests about namespaces, brokers and clusters pass unchecked."""
    assert topic_of(path) is None
