"""The kinds of model: where the passages come from. One class each, which answers for its kind."""
