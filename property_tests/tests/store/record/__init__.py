"""Tests of records of stores: their files, their reader, and the proxy."""
