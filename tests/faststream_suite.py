"""Run FastStream's own generic tests, those for every broker, with `PulsarBroker`; no copy of them is kept here.

    pulsar-ext broker run --port 6650 --admin-port 8080
    PULSAR_URL=pulsar://localhost:6650 python tests/faststream_suite.py CHECKOUT [arguments of pytest]

CHECKOUT is a checkout of FastStream at the installed version. Its tests need `pytest-asyncio`, `dirty-equals`,
`fastapi` and `typer`. Excluded are features that Pulsar lacks: templates of topics, the FastAPI router, and keys for
each element of a batch as in Kafka.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
import tomllib
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


def main(checkout: str, *arguments: str) -> int:
    """Run the tests; return pytest's exit status."""
    path = Path(checkout).resolve()
    version = tomllib.loads((path / "pyproject.toml").read_text())["project"]["version"]
    print(f"tests of FastStream {version}, with FastStream {importlib.metadata.version('faststream')}")
    importlib.import_module("faststream")  # the installed one, before the checkout is on the path
    sys.path.insert(0, str(path))
    options = ["--noconftest", "-p", "tests.conftest", "-o", "asyncio_mode=auto", "--import-mode=importlib"]
    quiet = ["-p", "no:randomly", "-p", "no:cacheprovider", "-W", "ignore", "-q"]
    return pytest.main(["-c", os.devnull, "--rootdir", str(path), *options, *quiet, __file__, *arguments])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

# The rest is for pytest, which finds FastStream's tests in the checkout.
from faststream import BaseMiddleware  # noqa: E402
from prometheus_client import CollectorRegistry  # noqa: E402
from tests.asyncapi.base.v2_6_0 import arguments as arguments_2  # noqa: E402
from tests.asyncapi.base.v2_6_0 import naming as naming_2  # noqa: E402
from tests.asyncapi.base.v2_6_0 import publisher as publisher_2  # noqa: E402
from tests.asyncapi.base.v2_6_0 import router as router_2  # noqa: E402
from tests.asyncapi.base.v3_0_0 import arguments as arguments_3  # noqa: E402
from tests.asyncapi.base.v3_0_0 import naming as naming_3  # noqa: E402
from tests.asyncapi.base.v3_0_0 import publisher as publisher_3  # noqa: E402
from tests.asyncapi.base.v3_0_0 import router as router_3  # noqa: E402
from tests.brokers.base import (  # noqa: E402
    basic,
    codec,
    connection,
    consume,
    include_router,
    middlewares,
    parser,
    publish,
    publish_command,
    requests,
    router,
    testclient,
)
from tests.opentelemetry import basic as opentelemetry  # noqa: E402
from tests.prometheus import basic as prometheus  # noqa: E402

import pulsar_ext  # noqa: E402
from pulsar_ext.faststream import (  # noqa: E402
    PulsarBroker,
    PulsarPublisher,
    PulsarRoute,
    PulsarRouter,
    TestPulsarBroker,
)
from pulsar_ext.faststream.config import full_topic  # noqa: E402
from pulsar_ext.faststream.opentelemetry import PulsarTelemetryMiddleware  # noqa: E402
from pulsar_ext.faststream.prometheus import PulsarPrometheusMiddleware  # noqa: E402
from pulsar_ext.faststream.publisher import PulsarPublishCommand  # noqa: E402

URL = os.environ.get("PULSAR_URL", "pulsar://localhost:6650")
QUIET = pulsar_ext.ConsoleLogger(pulsar_ext.LoggerLevel.Error)


class Subscribing:
    """Mixin that names a subscription, which FastStream's other brokers do not need."""

    def subscriber(self, *topics: Any, subscription: str = "s", **options: Any) -> Any:
        """Declare a subscriber."""
        return super().subscriber(*topics, subscription=subscription, **options)  # type: ignore[misc]


class Broker(Subscribing, PulsarBroker):
    """Broker that connects to the broker of this run."""

    def __init__(self, service_url: str = URL, **options: Any) -> None:
        super().__init__(service_url, client_logger=QUIET, **options)


class Router(Subscribing, PulsarRouter):
    """Router with a default subscription."""


class Route(PulsarRoute):
    """Route with a default subscription."""

    def __init__(self, call: Any, *args: Any, subscription: str = "s", **options: Any) -> None:
        super().__init__(call, *args, subscription=subscription, **options)


class Real(basic.BaseTestcaseConfig):
    """Configuration for a real broker."""

    timeout = 10.0
    publish_command_cls = PulsarPublishCommand
    route_class, publisher_class = Route, PulsarPublisher

    def get_broker(self, apply_types: bool = False, **options: Any) -> Broker:
        return Broker(apply_types=apply_types, **options)

    def get_router(self, **options: Any) -> Router:
        return Router(**options)


class Memory(Real):
    """Configuration in memory."""

    def patch_broker(self, *brokers: Broker, **options: Any) -> Any:
        return TestPulsarBroker(*brokers, **options)


@pytest.fixture
def settings() -> None:
    """Provide a fixture that FastStream's connection tests need."""


@pytest.fixture
def fake_producer_cls() -> type:
    """Return the class that publishes in memory."""
    from pulsar_ext.faststream.testing import _Loopback  # noqa: PLC0415

    return _Loopback


class TestConsume(Real, consume.BrokerRealConsumeTestcase): ...


class TestPublish(Real, publish.BrokerPublishTestcase): ...


class TestConnection(connection.BrokerConnectionTestcase):
    broker = Broker


class TestRouter(Real, router.RouterTestcase): ...


class TestRouterInMemory(Memory, router.RouterLocalTestcase): ...


class TestParser(Real, parser.CustomParserTestcase): ...


class TestMiddlewares(Real, middlewares.MiddlewareTestcase): ...


class TestExceptionMiddlewares(Real, middlewares.ExceptionMiddlewareTestcase): ...


class TestMiddlewaresInMemory(Memory, middlewares.MiddlewareTestcase): ...


class TestExceptionMiddlewaresInMemory(Memory, middlewares.ExceptionMiddlewareTestcase): ...


class TestMiddlewaresOrder(Memory, middlewares.MiddlewaresOrderTestcase): ...


class TestIncludedSubscriber(Real, include_router.IncludeSubscriberTestcase): ...


class TestIncludedPublisher(Real, include_router.IncludePublisherTestcase): ...


class TestClient(Memory, testclient.BrokerTestclientTestcase):
    def get_fake_producer_class(self) -> type:
        raise NotImplementedError


class TestCodec(Memory, codec.CodecTestcase): ...


class TestBatchCodec(Memory, codec.BatchCodecTestcase): ...


class TestPublishCommand(Real, publish_command.BatchPublishCommandTestcase): ...


class Twice(BaseMiddleware):
    """Middleware that doubles each body twice: as it was received, and as it was parsed."""

    async def on_receive(self) -> None:
        body = self.msg.data() * 2
        self.msg.__dict__["data"] = lambda: body

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        msg.body *= 2
        return await call_next(msg)


class TestRequests(Real, requests.RequestsTestcase):
    def get_middleware(self, **_: Any) -> type[Twice]:
        return Twice


class TestRequestsInMemory(Memory, TestRequests): ...


class TestPrometheus(
    Real,
    prometheus.LocalPrometheusTestcase,
    prometheus.LocalRPCPrometheusTestcase,
    prometheus.LocalMetricsSettingsProviderTestcase,
):
    messaging_system = "pulsar"

    def get_middleware(self, **options: Any) -> PulsarPrometheusMiddleware:
        return PulsarPrometheusMiddleware(**options)

    def get_settings_provider(self) -> Any:
        return self.get_middleware(registry=CollectorRegistry())._settings_provider_factory(None)


class TestTelemetry(Real, opentelemetry.LocalTelemetryTestcase):
    messaging_system = "pulsar"
    include_messages_counters = True
    telemetry_middleware_class = PulsarTelemetryMiddleware

    def destination_name(self, queue: str) -> str:
        return full_topic(queue)

    def assert_span(self, span: Any, action: str, queue: str, msg: str, parent_span_id: Any = None) -> None:
        """Check a span, whose topic is a full name, and whose message id is Pulsar's instead of a UUID."""
        attributes = dict(span.attributes)
        if (message_id := attributes.get("messaging.message.id")) is not None:
            assert pulsar_ext.MessageId.parse(message_id)
            attributes["messaging.message.id"] = str(uuid.uuid4())
        shown = SimpleNamespace(attributes=attributes, name=span.name, kind=span.kind, parent=span.parent)
        super().assert_span(shown, action, full_topic(queue), msg, parent_span_id)


class Counted(Real):
    """Configuration with the middleware for Prometheus."""

    def get_broker(self, apply_types: bool = False, middlewares: Any = (), **options: Any) -> Broker:
        counting = PulsarPrometheusMiddleware(registry=CollectorRegistry())
        return super().get_broker(apply_types, middlewares=(counting, *middlewares), **options)


class TestConsumeCounted(Counted, consume.BrokerRealConsumeTestcase): ...


class TestPublishCounted(Counted, publish.BrokerPublishTestcase): ...


class Traced(Real):
    """Configuration with the middleware for OpenTelemetry."""

    def get_broker(self, apply_types: bool = False, middlewares: Any = (), **options: Any) -> Broker:
        return super().get_broker(apply_types, middlewares=(PulsarTelemetryMiddleware(), *middlewares), **options)


class TestConsumeTraced(Traced, consume.BrokerRealConsumeTestcase): ...


class TestPublishTraced(Traced, publish.BrokerPublishTestcase): ...


class Shared(Real):
    """Configuration with Shared subscriptions and several handlers at once."""

    def get_subscriber_params(self, *args: Any, **kwargs: Any) -> Any:
        more = {"subscription_type": pulsar_ext.ConsumerType.Shared, "max_workers": 3}
        return super().get_subscriber_params(*args, **more, **kwargs)


class TestConsumeShared(Shared, consume.BrokerRealConsumeTestcase): ...


class TestPublishShared(Shared, publish.BrokerPublishTestcase): ...


class TestParserInMemory(Memory, parser.CustomParserTestcase): ...


class AsyncAPI:
    """Configuration for brokers."""

    broker_class, router_class, route_class, publisher_class = Broker, Router, Route, PulsarPublisher


class TestArguments2(AsyncAPI, arguments_2.ArgumentsTestcase): ...


class TestArguments3(AsyncAPI, arguments_3.ArgumentsTestcase): ...


class OfRouter(AsyncAPI):
    """Configuration for routers."""

    broker_class = Router

    def get_spec(self, *routers: Any) -> Any:
        return super().get_spec(Broker(routers=routers))  # type: ignore[misc]


class TestRouterArguments2(OfRouter, arguments_2.ArgumentsTestcase): ...


class TestRouterArguments3(OfRouter, arguments_3.ArgumentsTestcase): ...


class TestRouterPublisher2(OfRouter, publisher_2.PublisherTestcase): ...


class TestRouterPublisher3(OfRouter, publisher_3.PublisherTestcase): ...


class TestNaming2(AsyncAPI, naming_2.NamingTestCase): ...


class TestNaming3(AsyncAPI, naming_3.NamingTestCase): ...


class TestPublisher2(AsyncAPI, publisher_2.PublisherTestcase): ...


class TestPublisher3(AsyncAPI, publisher_3.PublisherTestcase): ...


class TestRouter2(AsyncAPI, router_2.RouterTestcase): ...


class TestRouter3(AsyncAPI, router_3.RouterTestcase): ...
