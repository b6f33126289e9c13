"""Puts this folder on the path, so that tests in every folder can use the helpers beside this file."""
