"""Kept calls, operators of torch and argument checks, for all launchers of this folder."""
