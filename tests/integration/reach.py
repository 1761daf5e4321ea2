"""Access to any kind of broker, for programs in other processes and for the official client."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar

import pulsar_ext
from pulsar_ext.testing import FaultProxy

IMPORTED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from reach import Reach
"""
"""Beginning of a program that calls `Reach.unpack` with the text of `Reach.pack`."""


@dataclass(frozen=True)
class Reach:
    """Addresses and credentials of a broker."""

    service_url: str
    admin_url: str
    access: Any
    detours: Any

    @classmethod
    def of(cls, broker):
        return cls(broker.service_url, broker.admin_url, broker.access, tuple(broker.detours))

    @classmethod
    def unpack(cls, text):
        return cls(*pickle.loads(bytes.fromhex(text)))

    def pack(self, service_url=None):
        """Return a text for the command line of a program, optionally with another service URL."""
        return pickle.dumps((service_url or self.service_url, self.admin_url, self.access, self.detours)).hex()

    def options(self):
        """Return the arguments of a `pulsar_ext` client without the service URL."""
        return {"admin": self.admin_url, **self.access.client_options(pulsar_ext)}

    def command_line(self):
        """Return the options of `pulsar-ext`."""
        options = ["--url", self.service_url, "--admin-url", self.admin_url]
        if self.access.trust_certs is not None:
            options += ["--trust-certs", self.access.trust_certs]
        if self.access.certificate is not None:
            certificate, key = self.access.certificate
            options += ["--certificate", certificate, "--key", key]
        return options

    def java_settings(self):
        """Return the settings of a Java client, one per line."""
        settings = {"serviceUrl": self.service_url}
        if self.access.trust_certs is not None:
            settings |= {"tlsTrustCertsFilePath": self.access.trust_certs, "tlsHostnameVerificationEnable": "true"}
        if self.access.certificate is not None:
            settings["authPluginClassName"] = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
            settings["authParams"] = "tlsCertFile:{},tlsKeyFile:{}".format(*self.access.certificate)
        return "\n".join(f"{name}={value}" for name, value in settings.items())

    def spark_options(self):
        """Return the options of a Spark read or write."""
        options = {"service.url": self.service_url, "admin.url": self.admin_url}
        if self.access.trust_certs is not None:
            options["pulsar.client.tlsTrustCertsFilePath"] = self.access.trust_certs
        if self.access.certificate is not None:
            certificate, key = self.access.certificate
            options["pulsar.client.tlsCertificateFilePath"] = certificate
            options["pulsar.client.tlsPrivateKeyFilePath"] = key
        return options

    def proxy(self):
        """Open a fault proxy."""
        return FaultProxy.to(self.service_url, self.detours)


def official_client(broker, service_url=None, **options):
    """Return a client of `pulsar` that logs errors only; the caller closes it."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(
        service_url or broker.service_url, logger=logger, **broker.access.client_options(pulsar), **options
    )
