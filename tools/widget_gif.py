"""The README's moving picture, filmed from the page that `eqtutor demo` writes, and beside it a
still one (.png) for readers who asked for less motion:

    eqtutor demo && python tools/widget_gif.py eqtutor-demo/demo.html nbs/images/widget.gif
"""
import sys
from io import BytesIO
from pathlib import Path
from shutil import which

from PIL import Image
from playwright.sync_api import sync_playwright

BROWSERS = 'chromium', 'chromium-browser', 'google-chrome'
MOVE = '''(slider, position) => {
  slider.value = position;
  slider.dispatchEvent(new Event('input', { bubbles: true }));
}'''


def photographs(page_file, width):
    "Four screenshots of the p4-CNN's widget, one a quarter turn."
    program = next(filter(None, map(which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=['--no-sandbox', '--disable-gpu'])
        page = browser.new_page(viewport=dict(width=width, height=900))
        page.goto(Path(page_file).resolve().as_uri())
        widget = page.locator('[role=group][aria-label^="p4-CNN"]')
        for position in range(4):
            widget.locator('input[type=range]').evaluate(MOVE, position)
            yield Image.open(BytesIO(widget.screenshot())).convert('RGB')
        browser.close()


def film(page_file, target, width=640):
    "An endless GIF of the screenshots, and the second of them as a PNG."
    shots = list(photographs(page_file, width))
    size = shots[0].width, max(shot.height for shot in shots)
    frames = []
    for shot in shots:
        frame = Image.new('RGB', size, 'white')
        frame.paste(shot)
        frames.append(frame.quantize(96, dither=Image.Dither.NONE))
    first, second, *_ = frames
    second.save(Path(target).with_suffix('.png'), optimize=True)
    first.save(target, save_all=True, append_images=frames[1:], duration=1600, loop=0,
               optimize=True)


if __name__ == '__main__':
    film(*sys.argv[1:3])
    print(f'{sys.argv[2]}: {Path(sys.argv[2]).stat().st_size/1e3:.0f} kB')
