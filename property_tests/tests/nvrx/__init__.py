"""Tests of NVRx's barrier: its model compared with the shipped file."""
