() => {
  // Pictures without words: axe takes an empty alt for an ornament, and looks at no svg without a
  // role. One inside a button, or inside a picture of several parts, has the words of that.
  const words = element => element.alt || element.getAttribute('aria-label') || '';
  const told = element => element.closest('[aria-hidden="true"]')
    || element.parentElement.closest('[role="img"], [role="radio"], button');
  return [...document.querySelectorAll('img, svg')]
    .filter(e => e.checkVisibility() && !told(e) && !words(e).trim())
    .map(element => element.outerHTML.replace(/base64,[^"]*/g, '…').slice(0, 160));
}
