"""The README's picture, in the light and in the dark: a digit on its side, and two answers.

    python tools/readme_pictures.py nbs/images

It is a part of the widget of the site's first page, without the controls, which a picture has not.
The grounds are transparent. Needs Playwright and Chromium, as the tests of the pages do.
"""
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from eqtutor.widgets import turn_a_digit

WIDTH = 480   # so that its letters are read on a phone, too
STYLE = '''
html, body { background: none !important; }
.turning, .pictures, .tools, .more { display: none !important; }
.eqtutor-live { padding: .2rem 0 !important; }
.headline::after { content: none !important; }
'''


def take(
    folder:Path, # the pictures are written into it
)->None:
    "Take the widget's picture in both themes, each pixel as nine."
    from playwright.sync_api import sync_playwright
    with TemporaryDirectory() as place, sync_playwright() as driver:
        page_file = turn_a_digit(broken=False, simple=True, turn=90).save(Path(place)/'page.html')
        browser = driver.chromium.launch(executable_path=sys.argv[2] if sys.argv[2:] else None)
        for scheme in 'light', 'dark':
            page = browser.new_page(color_scheme=scheme, device_scale_factor=3,
                                    viewport=dict(width=WIDTH, height=900))
            page.goto(page_file.as_uri())
            page.add_style_tag(content=STYLE)
            page.wait_for_timeout(1000)
            taken = page.locator('.eqtutor-turn').screenshot(omit_background=True)
            picture = Image.open(BytesIO(taken)).quantize(256, dither=Image.Dither.NONE)
            picture.save(folder/f'widget_{scheme}.png', optimize=True)
        browser.close()


if __name__ == '__main__': take(Path(sys.argv[1]))
