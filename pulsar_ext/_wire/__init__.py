"""Wire formats: protobuf fields, message ids and batch payloads (pure)."""
