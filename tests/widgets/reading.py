"What the keyboard reaches on a page, what a screen reader is told, and how wide the page is."
from .examples import measure

# a group may be without: each <details> is one
NAMED = {'slider', 'radio', 'radiogroup', 'button', 'checkbox', 'combobox', 'spinbutton', 'link',
         'image', 'img', 'Canvas', 'SvgRoot', 'rowheader', 'heading', 'DisclosureTriangle'}


def stops(page):
    "Everywhere the Tab key goes."
    page.evaluate('document.activeElement.blur()')
    reached = []
    for _ in range(50):
        page.keyboard.press('Tab')
        now = page.evaluate(measure('focus'))
        if not now or now in reached: return reached
        reached.append(now)
    raise AssertionError('Tab does not come to an end')


def spoken(page):
    "(role, name) of all that a screen reader meets."
    session = page.context.new_cdp_session(page)
    nodes = session.send('Accessibility.getFullAXTree')['nodes']
    said = [n for n in nodes if not n['ignored']]
    return [(n['role']['value'], n.get('name', {}).get('value', '').strip()) for n in said]


def unnamed(page): return [role for role, name in spoken(page) if role in NAMED and not name]


def too_wide(page):
    "By how many pixels; what is to blame goes with a failing test's output."
    size = page.evaluate(measure('size'))
    if size['excess']: print(*size['wide'], sep='\n')
    return size['excess']
