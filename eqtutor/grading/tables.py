"""Text of strangers in tables: nothing of it moves a cursor, and no spreadsheet runs it."""
# Plain module: edited by hand, no notebook exports it.
import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

STARTS = '=+-@'       # of what a spreadsheet takes for a formula
ALIKE = '−÷×'         # what some take for one of these


def visible(text:Any)->Any:
    "Text without what moves a cursor or is half a character, shown as Python would; others as is."
    if not isinstance(text, str): return text
    return ''.join(c if c.isprintable() or c == '\n' else ascii(c)[1:-1] for c in text)


def shortened(text:str, most:int)->str:
    "The text, or its beginning."
    return text if len(text) <= most else text[:most - 2] + ' …'


def begins_a_formula(letter:str)->bool:
    "Does a letter, or its full-width, small or raised form, make a spreadsheet compute?"
    return unicodedata.normalize('NFKC', letter)[:1] in {*STARTS, *ALIKE}


def spreadsheet_safe(x:Any)->str:
    "Text that a spreadsheet does not run, also where it parts cells at a semicolon, comma or line."
    def quoted(start:re.Match)->str:
        return start[1] + ("'" if begins_a_formula(start[2]) else '') + start[2]
    # a reader that parts a cell may begin behind a quotation mark, too
    return re.sub(r'((?:^|[;,|\n])[\s"\']*)([^\s"\'])', quoted, visible(str(x)))


def table(columns:Iterable[str], rows:Iterable[Iterable[Any]])->str:
    "Rows as CSV in which every cell is quoted, and none is a formula."
    out = csv.writer(text := io.StringIO(), lineterminator='\n', quoting=csv.QUOTE_ALL)
    for row in (columns, *rows): out.writerow(map(cell, row))
    return text.getvalue()


def cell(x:Any)->str:
    "What stands in a table: nothing for None, a number as it is, text that is safe."
    if x is None: return ''
    return f'{x:g}' if isinstance(x, int | float) else spreadsheet_safe(x)
