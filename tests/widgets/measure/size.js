() => {
  // By how much the page is wider than the window, and what is; its smallest text, and
  // pictures that are cut off at the right, or not of their own shape.
  const root = document.documentElement;
  const texts = [...document.querySelectorAll('small, td, p, output')];
  const sizes = texts.map(e => parseFloat(getComputedStyle(e).fontSize));
  const cut = [...document.querySelectorAll('img.figure-img')].filter(image => {
    const box = image.getBoundingClientRect();
    const shape = image.naturalHeight / image.naturalWidth;
    return box.right > root.clientWidth || Math.abs(box.height - shape * box.width) > 1;
  });
  const beyond = element => element.getBoundingClientRect().right > root.clientWidth + 1;
  const scrolls = element => getComputedStyle(element).overflowX !== 'visible';
  const wide = [...document.querySelectorAll('body *')].filter(element => {
    let outer = element.parentElement;
    while (outer && !scrolls(outer)) outer = outer.parentElement;
    return beyond(element) && !outer;
  });
  return {
    wide: wide.slice(0, 5).map(element => element.outerHTML.slice(0, 200)),
    excess: root.scrollWidth - root.clientWidth,
    smallest: Math.min(...sizes),
    cut: cut.map(image => image.alt),
  };
}
