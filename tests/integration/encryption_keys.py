"""Keys for end-to-end encryption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

if TYPE_CHECKING:
    from pathlib import Path


def encryption_key_files(directory: Path) -> tuple[Path, Path]:
    """Create a pair of keys in PEM; return the files of the private and of the public key."""
    key = rsa.generate_private_key(65537, 2048)
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, form, plain)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    files = directory / "private.pem", directory / "public.pem"
    for file, content in zip(files, (private, public), strict=True):
        file.write_bytes(content)
    return files
