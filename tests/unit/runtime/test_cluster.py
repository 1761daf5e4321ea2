"""Changes of the cluster that a client is connected to: numbering, and consumers and readers that follow."""

from __future__ import annotations

from itertools import groupby

import pulsar
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._runtime.cluster import ClusterWatch

WEST, EAST = "pulsar://west:6650", "pulsar://east:6650"


class Following:
    """A consumer that notes the cluster it follows to, and raises the given errors when reopened."""

    def __init__(self, failures=(), cluster=0):
        self._cluster_, self.failures, self.calls = cluster, list(failures), 0
        self.is_open = True

    def _follow_cluster_(self, number):
        self.calls += 1
        self._cluster_, self.is_open = number, False

    def _reopen_(self, _timeout_millis):
        if self.failures:
            raise self.failures.pop()
        self.is_open = True


def watch_of(*followers):
    """Return a watch of consumers, the list whose last item is the service URL, and the list of dropped clusters."""
    urls, forgotten = [WEST], []
    return ClusterWatch(lambda: urls[-1], lambda: followers, lambda: forgotten.append(urls[-1])), urls, forgotten


@given(urls=st.lists(st.sampled_from([WEST, EAST, "pulsar://north:6650"])))
def test_each_service_url_change_counts_once(urls):
    """The number grows by one with each URL that differs from the previous one."""
    watch, service_urls, _ = watch_of()
    for url in urls:
        service_urls.append(url)
        watch.number()
    assert watch.number() == len(list(groupby([WEST, *urls]))) - 1


def test_fixed_service_url_is_never_queried():
    """Without a changing service URL, the client stays at cluster 0."""
    watch = ClusterWatch(None, list, lambda: None)
    assert not watch.may_change
    assert watch.number() == 0


def test_consumers_follow_to_the_current_cluster():
    """Each consumer follows once, also one that was opened on the first cluster after the change was detected."""
    first, late = Following(), Following()
    followers = [first]
    watch, urls, forgotten = watch_of()
    watch._followers = lambda: followers
    watch.tick(0.0)
    assert not first.calls
    urls.append(EAST)
    assert watch.number() == 1
    watch.tick(0.0)
    followers.append(late)
    watch.tick(0.0)
    watch.tick(0.0)
    assert (first._cluster_, first.calls, late._cluster_, late.calls) == (1, 1, 1, 1)
    assert forgotten == [EAST]


def test_failed_follow_is_retried():
    """A consumer's error is retried; neither that nor a closed consumer keeps others from following."""
    closed, failing = Following([pulsar.AlreadyClosed()]), Following([pulsar.ConnectError(), pulsar.Timeout()])
    watch, urls, _ = watch_of(closed, failing, last := Following())
    urls.append(EAST)
    for is_open in (False, False, True):
        watch.tick(0.0)
        assert (last._cluster_, last.is_open, failing.is_open) == (1, True, is_open)
    assert (failing._cluster_, failing.calls, closed._cluster_) == (1, 1, 1)


def test_all_consumers_are_closed_before_one_is_reopened():
    """All are closed first, because the C++ client would connect open ones to the other cluster."""
    first, second = Following(), Following()
    seen = []
    first._reopen_ = lambda _: seen.append(second.is_open)
    watch, urls, _ = watch_of(first, second)
    urls.append(EAST)
    watch.tick(0.0)
    assert seen == [False]


def test_return_to_the_first_cluster_is_another_change():
    """The first cluster gets a new number, so messages received there before are not acknowledged."""
    following = Following()
    watch, urls, _ = watch_of(following)
    for url in (EAST, WEST):
        urls.append(url)
        watch.tick(0.0)
    assert following._cluster_ == 2
