"""Searches and rules of thumb that the exact search is compared with, on the same cost tables."""
