"""Every code block of the README and of the documents runs, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import Page
from ways import OWN_PROXY

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.testing import Profile

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROFILE = Profile(
    "docs",
    "the documents' examples: deduplication, an index of entries, acknowledgements inside batches",
    {
        "brokerDeduplicationEnabled": "true",
        "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
    },
)

pytestmark = [
    pytest.mark.xdist_group("docs"),  # pages share the namespace public/default
    pytest.mark.standalone_only("runs the documents' examples, which need no certificates", ways=("mtls",)),
]


def _pages():
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        yield pytest.param(page, id=name, marks=OWN_PROXY if page.name == "test-with-faults.md" else ())


@pytest.fixture
def empty_broker(pulsar_broker_factory, monkeypatch):
    """A broker without topics in public/default, with its admin URL in the environment."""
    broker = pulsar_broker_factory(PROFILE)
    with PulsarAdmin(broker.admin_url) as admin:
        for topic in admin.topics("public/default"):
            admin.delete_topic(topic, force=True)
    monkeypatch.setenv("PULSAR_ADMIN_URL", broker.admin_url)
    return broker


@pytest.mark.filterwarnings("default")  # the pages' programs are not tests
@pytest.mark.parametrize("page", [*_pages()])
def test_every_block_of_a_page_runs(page, empty_broker, tmp_path, monkeypatch):
    """The blocks of a page run in order."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    Page(page, empty_broker, tmp_path).run()
