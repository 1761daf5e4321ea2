"""Bytes on the wire: protobuf fields, message ids, batch payloads (pure)."""
