"""The course on paper: one PDF for each chapter of the built site, in the order of reading.

    python tools/site/print_course.py _docs pages && pdfunite pages/*.pdf eqtutor.pdf

The pages print as they do from a browser: every fold open, nothing of the site's frame.
"""
# Plain module: edited by hand, no notebook exports it.
import sys
from pathlib import Path

from eqtutor.tutor.course import course_chapters, course_folder
from eqtutor.tutor.reading import page_address

UNPRINTED = '5_workshop', '92_api.ipynb'   # sources and signatures, which no one reads on paper


def printed_pages()->list[str]:
    "The addresses within the site of what is printed."
    home = course_folder()
    paths = ['index.ipynb', *(path.relative_to(home).as_posix()
                              for path in course_chapters().values() if path.parent != home)]
    kept = [path for path in paths if not any(part in path for part in UNPRINTED)]
    return [page_address(path).removeprefix(page_address('')) for path in kept]


def print_course(
    site:Path,   # where the pages are
    folder:Path, # for the PDFs
)->list[Path]:
    "Print each page with the browser that Playwright finds."
    from playwright.sync_api import sync_playwright
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch()
        page = browser.new_page()
        for number, address in enumerate(printed_pages()):
            page.goto((site/address).resolve().as_uri())
            page.evaluate('document.fonts.ready.then(() => 0)')
            page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
            files.append(folder/f'{number:02}_{Path(address).stem}.pdf')
            page.pdf(path=files[-1], format='A4', prefer_css_page_size=True, outline=True,
                     tagged=True)
        browser.close()
    return files


if __name__ == '__main__': print_course(*map(Path, sys.argv[1:3]))
