"""Ninety minutes about a chapter, made of its own cells: slides, a handout and a notebook to run.

A lesson marks what is shown, and nothing is written twice: `<!-- slide -->` stands before a piece
of text, `#| slide` in a cell whose picture, widget or code is shown. `more` in place of `slide`
puts the piece on the slide before it, `beside` in a column on its right, `handout` on the handout,
too. With `slide again` an answer has the picture of its question beside it.
"""
from .marks import Piece, marked_pieces
from .pages import SESSIONS, Session, read_session, write_session

__all__ = ['SESSIONS', 'Piece', 'Session', 'marked_pieces', 'read_session', 'write_session']
