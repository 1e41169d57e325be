"""Tests of process groups: their model compared with torch."""
