"""Markdown of strangers: as HTML in which nothing of it can act, and as Markdown for formgrader."""
# Plain module: edited by hand, no notebook exports it.
import re
from html import escape, unescape
from xml.etree.ElementTree import Element

from mistune import HTMLRenderer, create_markdown
from mistune.plugins.math import math

# what a formula may consist of; latex2mathml would hand on links, styles and unescaped text
ELEMENTS = {'math', 'mfrac', 'mi', 'mn', 'mo', 'mover', 'mpadded', 'mphantom', 'mroot', 'mrow',
            'mspace', 'msqrt', 'mstyle', 'msub', 'msubsup', 'msup', 'mtable', 'mtd', 'mtext', 'mtr',
            'munder', 'munderover'}
ATTRIBUTES = {'accent', 'columnalign', 'display', 'displaystyle', 'fence', 'form', 'linebreak',
              'linethickness', 'mathvariant', 'maxsize', 'minsize', 'rowspacing', 'scriptlevel',
              'separator', 'stretchy', 'symmetric'}
LINKS = re.compile(r'(https?:|mailto:|#)', re.I)


def safe_html(
    text:str, # Markdown, with formulas between $
)->str:
    "HTML of known elements alone: what the text has of its own HTML is shown, not obeyed."
    return str(create_markdown(renderer=Renderer(), plugins=['table', formulas])(text))


class Renderer(HTMLRenderer):
    "HTML without images, and with links to the web alone; `escape` is mistune's own default."
    def link(self, text:str, url:str, title:str|None=None)->str:
        "A link, or its text."
        return super().link(text, url) if LINKS.match(url) else text

    def image(self, text:str, url:str, title:str|None=None)->str:
        "The words that stand for an image: whoever opens the page asks no other server."
        return text   # mistune has escaped it


def formulas(md)->None:
    "A plugin of mistune: formulas as MathML, which browsers set themselves."
    math(md)
    md.renderer.register('inline_math', lambda renderer, text: mathml(text, 'inline'))
    md.renderer.register('block_math', lambda renderer, text: f'<p>{mathml(text, "block")}</p>\n')


def mathml(
    latex:str,
    display:str, # 'inline' or 'block'
)->str:
    "A formula as MathML; as its source where it is no formula."
    try:
        from latex2mathml.converter import convert_to_element
        # the environment that it does not know is a matrix whose columns are aligned in pairs
        known = re.sub(r'\\(begin|end)\{(aligned|split|align\*?)\}', r'\\\1{matrix}', latex)
        return markup(convert_to_element(known, display=display))
    except (Exception, RecursionError):
        return f'<code>{escape(latex)}</code>'


def markup(element:Element)->str:
    "An element with known names alone; of another what stands in it."
    inside = escape(unescape(element.text or '')) + ''.join(
        markup(child) + escape(unescape(child.tail or '')) for child in element)
    if element.tag not in ELEMENTS: return inside
    told = ''.join(f' {name}="{escape(unescape(value))}"' for name, value in element.attrib.items()
                   if name in ATTRIBUTES)
    return f'<{element.tag}{told}>{inside}</{element.tag}>'


def inert(
    text:str, # Markdown
)->str:
    """The Markdown without HTML, links, images and active TeX, for a page that would obey them.

    A blank behind `<` and `]` says the same to a reader, within code and formulas as well.
    """
    text = re.sub(r'<(?=[a-zA-Z/!?])', '< ', text)
    text = re.sub(r'\](?=[(:\[])', '] ', text)
    text = re.sub(r'\\(?=(href|url|require|style|class|cssId|html\w*|data)\b)', r'\\ ', text)
    return re.sub(r'^([ \t>]*(?:```+|~~~+))[ \t]*mermaid', r'\1', text, flags=re.M | re.I)
