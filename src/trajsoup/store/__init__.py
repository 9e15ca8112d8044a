"""Bytes: checkpoint readers, signatures, digests, atomic output, records."""
