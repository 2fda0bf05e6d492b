seen => {
  // Leaves one element of each kind, and none of a kind in `seen`: what has the same place, class
  // and colours looks the same, and axe takes seconds for a long page. Formulas have the colour of
  // the text around them. The kinds that are known now are the result.
  const name = element => {
    const colours = (element.getAttribute('style') || '').match(/(color|background)[^\x3b]*/g);
    return `${element.localName}.${element.getAttribute('class')} ${colours || ''}`;
  };
  const kind = element => {
    const inner = new Set([...element.querySelectorAll('*')].map(name));
    const path = [...inner].sort();
    for (let outer = element; outer !== document.body; outer = outer.parentElement) {
      path.push(name(outer));
    }
    return path.join('<');
  };
  const known = new Set(seen);
  document.querySelectorAll('math').forEach(element => element.remove());
  document.querySelectorAll('body :not(script, style)').forEach(element => {
    if (!element.isConnected) return;
    const own = kind(element);
    if (known.has(own)) element.remove();
    else known.add(own);
  });
  return [...known];
}
