"""How a broker is reached, whatever it is: by programs in processes of their own, and by the official client."""

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
"""What a program begins with that is to `Reach.unpack` what `Reach.pack` made."""


@dataclass(frozen=True)
class Reach:
    """The addresses of a broker, and what gets in."""

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
        """Make text of it for the command line of a program, with another service URL if one is given."""
        return pickle.dumps((service_url or self.service_url, self.admin_url, self.access, self.detours)).hex()

    def options(self):
        """Give the arguments of a client of `pulsar_ext` besides the service URL."""
        return {"admin": self.admin_url, **self.access.client_options(pulsar_ext)}

    def command_line(self):
        """Give the options of `pulsar-ext`."""
        options = ["--url", self.service_url, "--admin-url", self.admin_url]
        if self.access.trust_certs is not None:
            options += ["--trust-certs", self.access.trust_certs]
        if self.access.certificate is not None:
            certificate, key = self.access.certificate
            options += ["--certificate", certificate, "--key", key]
        return options

    def java_settings(self):
        """Give the settings of a Java client, a line each."""
        settings = {"serviceUrl": self.service_url}
        if self.access.trust_certs is not None:
            settings |= {"tlsTrustCertsFilePath": self.access.trust_certs, "tlsHostnameVerificationEnable": "true"}
        if self.access.certificate is not None:
            settings["authPluginClassName"] = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
            settings["authParams"] = "tlsCertFile:{},tlsKeyFile:{}".format(*self.access.certificate)
        return "\n".join(f"{name}={value}" for name, value in settings.items())

    def spark_options(self):
        """Give the options of a read or a write with Spark."""
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
    """Make a client of `pulsar` that says little; it is closed by whoever made it."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(
        service_url or broker.service_url, logger=logger, **broker.access.client_options(pulsar), **options
    )
