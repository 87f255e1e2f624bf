"""Plugins made, packed, signed, installed, upgraded and removed, with or without a host."""
