() => {
  // What a reader would trip over on a page: code that has to be scrolled, figures without a
  // caption or a picture, buttons on text, what leaves the page, folds that stayed closed.
  const name = element => element.outerHTML.slice(0, 160);
  const all = selector => [...document.querySelectorAll(selector)].filter(e => e.checkVisibility());
  const images = all('main img').filter(element => !element.closest('[id^="eqtutor-"]'));
  const caption = image => image.closest('figure')?.querySelector('figcaption');
  const covers = button => {
    const box = button.getBoundingClientRect();
    const text = document.createRange();
    text.selectNodeContents(button.parentElement.querySelector('code'));
    const under = rect => rect.right > box.left + 1 && rect.bottom > box.top + 1
      && rect.top < box.bottom - 1;
    return [...text.getClientRects()].some(under);
  };
  const leaves = element => {
    const box = element.getBoundingClientRect();
    return box.left < -1 || box.right > document.documentElement.clientWidth + 1;
  };
  return {
    scrolled: all('main pre.sourceCode').filter(e => e.scrollWidth > e.clientWidth + 1).map(name),
    // a card says below its picture what it shows
    bare: images.filter(e => !e.closest('.part'))
      .filter(e => !caption(e)?.checkVisibility() || !caption(e).textContent.trim())
      .map(e => e.alt.slice(0, 80)),
    small: images.filter(e => e.naturalWidth === 0).map(name),
    outside: all('main :is(figure, summary, pre, table, details)').filter(leaves).map(name),
    covered: all('main .code-copy-button').filter(covers).map(e => name(e.parentElement)),
    closed: document.querySelectorAll('main details:not([open])').length,
  };
}
