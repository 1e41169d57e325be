"""Tests of torchft's lighthouse and manager: their models compared with the shipped extension."""
