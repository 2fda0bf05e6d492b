() => {
  // By how much the page is wider than the window, its smallest text, and pictures that are cut:
  // wider than what they stand in, or not of their own shape.
  const root = document.documentElement;
  const texts = [...document.querySelectorAll('small, td, p, output')];
  const sizes = texts.map(e => parseFloat(getComputedStyle(e).fontSize));
  const cut = [...document.querySelectorAll('img.figure-img')].filter(image => {
    const box = image.getBoundingClientRect();
    const shape = image.naturalHeight / image.naturalWidth;
    return box.right > root.clientWidth || Math.abs(box.height - shape * box.width) > 1;
  });
  return {
    excess: root.scrollWidth - root.clientWidth,
    smallest: Math.min(...sizes),
    cut: cut.map(image => image.alt),
  };
}
