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

  // what lies behind an element's text: it is asked once for each element
  const known = new Map();
  const behind = element => {
    if (!element) return { colour: canvas, picture: false, fade: 1 };
    if (known.has(element)) return known.get(element);
    const style = getComputedStyle(element);
    const outer = behind(element.parentElement);
    const found = {
      colour: over(parse(style.backgroundColor), outer.colour),
      picture: outer.picture || style.backgroundImage !== 'none',
      fade: outer.fade * style.opacity,
    };
    known.set(element, found);
    return found;
  };

  const measure = (element, text) => {
    const { colour: ground, picture, fade } = behind(element);
    const style = getComputedStyle(element);
    const colour = parse(style.color);
    const front = over([...colour.slice(0, 3), colour[3] * fade], ground);
    const [a, b] = [luminance(front), luminance(ground)];
    const size = parseFloat(style.fontSize);
    const big = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    return { text: text.slice(0, 60), picture, ratio, want: big ? 3 : 4.5 };
  };

  // words of one kind in a block of code look alike: the first one is measured
  const kinds = new Map();
  const repeated = element => {
    const block = element.closest('pre.sourceCode');
    if (!block) return false;
    if (!kinds.has(block)) kinds.set(block, new Set());
    const before = kinds.get(block).size;
    return kinds.get(block).add(element.className).size === before;
  };

  const results = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = walk.currentNode.textContent.trim();
    if (!text || repeated(element)) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    if (element.closest('script,style,noscript,svg')) continue;
    results.push(measure(element, text));
  }
  return results;
}
