"""The papers' tables: what they print, how their rows are trained here, what is measured beside
them."""
# Plain module: edited by hand, no notebook exports it.
