"""The README's moving picture, filmed from the page that `eqtutor demo` writes, and beside it a still one (.png) for readers who asked for less motion:

    eqtutor demo && python tests/widget_gif.py eqtutor-demo/demo.html nbs/images/widget.gif
"""
import sys
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import BROWSERS
from PIL import Image
from playwright.sync_api import sync_playwright
from shutil import which

def film(page_file, target, width=640):
    "Four screenshots of the p4-CNN's widget, one a quarter turn, as an endless GIF."
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=next(filter(None, map(which, BROWSERS))), args=['--no-sandbox', '--disable-gpu'])
        page = browser.new_page(viewport=dict(width=width, height=900))
        page.goto(Path(page_file).resolve().as_uri())
        widget = page.locator('[role=group][aria-label^="p4-CNN"]')
        slider, frames = widget.locator('input[type=range]'), []
        for position in range(4):
            slider.evaluate('(e, n) => { e.value = n; e.dispatchEvent(new Event("input", {bubbles: true})) }', position)
            frames.append(Image.open(BytesIO(widget.screenshot())).convert('RGB'))
        browser.close()
    height = max(f.height for f in frames)
    still = [Image.new('RGB', (frames[0].width, height), 'white') for _ in frames]
    for s, f in zip(still, frames): s.paste(f)
    palette = [s.quantize(96, dither=Image.Dither.NONE) for s in still]
    palette[1].save(Path(target).with_suffix('.png'), optimize=True)
    palette[0].save(target, save_all=True, append_images=palette[1:], duration=1600, loop=0, optimize=True)

if __name__ == '__main__':
    film(*sys.argv[1:3])
    print(f'{sys.argv[2]}: {Path(sys.argv[2]).stat().st_size/1e3:.0f} kB')
