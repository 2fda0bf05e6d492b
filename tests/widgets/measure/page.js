() => {
  // What a reader would trip over on a page: code that has to be scrolled, figures without words,
  // buttons on text, formulas in another font than the page's own.
  const name = element => element.outerHTML.slice(0, 160);
  const all = selector => [...document.querySelectorAll(selector)].filter(e => e.checkVisibility());
  const own = element => !element.closest('[id^="eqtutor-"]');
  const scrolled = all('main pre.sourceCode').filter(e => e.scrollWidth > e.clientWidth + 1);
  const images = all('main img').filter(own);
  const covered = all('main .code-copy-button').filter(button => {
    const box = button.getBoundingClientRect();
    const text = document.createRange();
    text.selectNodeContents(button.parentElement.querySelector('code'));
    const under = rect => rect.right > box.left + 1 && rect.bottom > box.top + 1
      && rect.top < box.bottom - 1;
    return [...text.getClientRects()].some(under);
  });
  const inside = element => {
    const box = element.getBoundingClientRect();
    return box.left >= -1 && box.right <= document.documentElement.clientWidth + 1;
  };
  return {
    scrolled: scrolled.map(name),
    silent: images.filter(e => !e.alt.trim()).map(name),
    bare: images.filter(e => !e.closest('figure')?.querySelector('figcaption')?.textContent.trim())
      .map(e => e.alt.slice(0, 80)),
    small: images.filter(e => e.naturalWidth === 0).map(name),
    outside: all('main :is(figure, summary, pre, table, details)')
      .filter(e => !inside(e)).map(name),
    covered: covered.map(e => name(e.parentElement)),
    closed: document.querySelectorAll('main details:not([open])').length,
    paint: performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)[0],
  };
}
