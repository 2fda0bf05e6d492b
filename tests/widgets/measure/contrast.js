() => {
  // For each visible piece of text its contrast with what lies behind it, layers of both mixed
  // down to opaque colours. Text over a picture has no single background, and is reported so.
  const parse = colour => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    return [...numbers.slice(0, 3), numbers.length > 3 ? numbers[3] : 1];
  };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const linear = value => {
    const share = value / 255;
    return share <= .04045 ? share / 12.92 : ((share + .055) / 1.055) ** 2.4;
  };
  const luminance = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);

  const probe = document.createElement('div');
  probe.style.background = 'Canvas';
  probe.style.position = 'absolute';
  document.body.append(probe);
  const canvas = parse(getComputedStyle(probe).backgroundColor);
  probe.remove();

  const measure = (element, text) => {
    const layers = [];
    let picture = false;
    let fade = 1;
    let outer = element;
    while (outer) {
      const style = getComputedStyle(outer);
      layers.push(parse(style.backgroundColor));
      picture ||= style.backgroundImage !== 'none';
      fade *= style.opacity;
      outer = outer.parentElement;
    }
    const behind = layers.reverse().reduce((below, layer) => over(layer, below), canvas);
    const style = getComputedStyle(element);
    const colour = parse(style.color);
    const front = over([...colour.slice(0, 3), colour[3] * fade], behind);
    const [a, b] = [luminance(front), luminance(behind)];
    const size = parseFloat(style.fontSize);
    const big = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    return { text: text.slice(0, 60), picture, ratio, want: big ? 3 : 4.5 };
  };

  const results = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = walk.currentNode.textContent.trim();
    if (!text || !element.checkVisibility({ visibilityProperty: true })) continue;
    if (element.closest('script,style,noscript,svg')) continue;
    results.push(measure(element, text));
  }
  return results;
}
