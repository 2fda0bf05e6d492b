"""An answer that stays closed when all cells run."""
# Plain module: edited by hand, no notebook exports it.
import sys
from collections.abc import Iterator
from html import escape
from typing import Any


def fold_output(
    words:str,      # on the fold
    caption:str='', # markdown, under what is shown
)->None:
    """Put what this cell puts out from here on into a fold that is closed.

    JupyterLab opens the outputs of a cell that runs, whatever its metadata say. So the fold is part
    of the output.
    """
    from IPython import get_ipython
    from IPython.display import Markdown, display
    from IPython.utils.capture import capture_output
    shell = get_ipython()
    if shell is None: return
    hook, capture = sys.displayhook, capture_output()
    captured = capture.__enter__()
    catch, values = sys.displayhook, list[int]()   # where among the outputs a value stands

    def note(value:Any)->None:
        if value is not None: values.append(len(captured.outputs))
        catch(value)
    sys.displayhook = note

    # after matplotlib has put out its figures
    def show(result:Any)->None:
        shell.events.unregister('post_run_cell', show)
        capture.__exit__(None, None, None)
        sys.displayhook = hook
        if captured.stderr: print(captured.stderr, file=sys.stderr, end='')
        silent = result.info.raw_cell.rstrip().endswith(';')   # asks not to show its value
        outputs = [o for i, o in enumerate(captured.outputs) if not (silent and i in values)]
        parts = [*parts_of(captured.stdout, outputs), *filter(None, [caption])]
        if len(parts) > bool(caption): display(Markdown(in_fold(words, parts)))
    shell.events.register('post_run_cell', show)


def in_fold(
    words:str,
    parts:list[str], # markdown
)->str:
    "Parts in a closed fold, as markdown."
    return '\n\n'.join([f'<details><summary>{words}</summary>', *parts, '</details>'])


def parts_of(
    printed:str,
    outputs:list[Any], # as IPython records them
)->Iterator[str]:
    "What a cell has printed and shown, as markdown."
    if printed: yield f'<pre>{escape(printed)}</pre>'
    for output in outputs:
        data = output.data
        if 'text/markdown' in data: yield data['text/markdown']
        elif 'image/png' in data: yield picture(data['image/png'], output.metadata or {})
        elif 'text/html' in data: yield data['text/html']
        else: yield f'<pre>{escape(data.get("text/plain", ""))}</pre>'


def picture(
    png:bytes|str, # bytes, or base64
    metadata:dict,
)->str:
    "A picture as an element, in the size that its metadata say."
    from base64 import b64encode
    text = png if isinstance(png, str) else b64encode(png).decode()
    width = metadata.get('image/png', metadata).get('width')
    size = f' width="{width}"' if width else ''
    return f'<img src="data:image/png;base64,{"".join(text.split())}"{size}>'
