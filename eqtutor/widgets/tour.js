// Somebody shows the reader around: a few steps, each of which points at its part, says what to do,
// and sees when it is done. Nothing waits for it: every control works as ever, and one may go on,
// back or away at any time.
import { calm, decimal, make, near } from './shared.js';

// A step has `level` (network, layer or pixel), `words`, `part(root)` which it points at, and
// `done(widget, memory)`. It may have `memory(widget)`, taken as it begins, `control(root)` for the
// keyboard, `begin(widget)`, and `act`: the words of a button, and what it does with the widget.
class Tour {
  constructor(widget, steps) {
    Object.assign(this, { widget, steps, number: null });
    const find = name => widget.root.querySelector(name);
    this.button = find('.guide');
    this.box = find('.tour');
    this.lens = find('.lens');
    this.button.addEventListener('click', () => (this.number === null ? this.go(0) : this.end()));
    find('.tour .end').addEventListener('click', () => this.end());
    find('.tour .back').addEventListener('click', () => this.go(this.number - 1));
    find('.tour .next').addEventListener('click', () => this.next());
    find('.tour .act').addEventListener('click', () => this.step.act[1](widget));
    find('.tour .there').addEventListener('click', () => this.focus());
    widget.root.addEventListener('keydown', event => {
      if (event.key === 'Escape' && this.number !== null && !widget.drawing) this.end();
    });
    new ResizeObserver(() => this.follow()).observe(widget.root);
  }

  get step() {
    return this.steps[this.number];
  }

  next() {
    if (this.number + 1 < this.steps.length) this.go(this.number + 1);
    else this.end();
  }

  go(number) {
    if (number < 0) return;
    const begins = this.number === null;
    Object.assign(this, { number, isDone: false });
    const { widget, step } = this;
    widget.root.dataset.level = step.level;
    step.begin?.(widget);
    this.memory = step.memory?.(widget);
    this.box.hidden = this.lens.hidden = false;
    this.button.setAttribute('aria-expanded', true);
    this.write();
    this.zoom();
    widget.request();
    const part = step.part(widget.root);
    part?.scrollIntoView({ block: 'nearest', behavior: calm() ? 'auto' : 'smooth' });
    if (begins) this.box.querySelector('.next').focus({ preventScroll: true });
  }

  end() {
    if (this.box.contains(document.activeElement)) this.button.focus({ preventScroll: true });
    this.number = null;
    delete this.widget.root.dataset.level;
    this.box.hidden = this.lens.hidden = true;
    this.button.setAttribute('aria-expanded', false);
    this.widget.request();
  }

  focus() {
    const { root, slider } = this.widget;
    slider.classList.remove('by-hand'); // who came by keys sees where he is
    (this.step.control?.(root) ?? slider).focus();
  }

  write() {
    const { step, number, steps, box } = this;
    const levels = ['network', 'layer', 'pixel'].map(level => {
      const word = make('span', { textContent: level });
      if (level === step.level) word.setAttribute('aria-current', 'step');
      return word;
    });
    box.querySelector('.levels').replaceChildren(...levels);
    box.querySelector('.number').textContent = `${number + 1} of ${steps.length}`;
    box.querySelector('.task').textContent = step.words;
    box.querySelector('.back').disabled = number === 0;
    const act = box.querySelector('.act');
    act.hidden = !step.act;
    act.textContent = step.act?.[0] ?? '';
    this.tell(`Step ${number + 1} of ${steps.length}, ${step.level}: ${step.words}`);
    this.mark();
  }

  // Is the thing done? Asked whenever something has changed.
  show() {
    if (this.number === null) return;
    if (!this.isDone && this.step.done(this.widget, this.memory)) {
      this.isDone = true;
      this.mark();
      this.tell(this.isLast ? 'Done. That is the end of the tour.' : 'Done. Press Next to go on.');
    }
    this.follow();
  }

  get isLast() {
    return this.number === this.steps.length - 1;
  }

  mark() {
    const next = this.box.querySelector('.next');
    this.box.classList.toggle('done', this.isDone);
    this.box.querySelector('.state').textContent = this.isDone ? '✓ done' : 'try it';
    next.textContent = this.isLast ? 'End' : this.isDone ? 'Next' : 'Skip';
    next.classList.toggle('play', this.isDone);
  }

  tell(words) {
    this.box.querySelector('.told').textContent = words;
  }

  // From the part before to this one: the frame moves there.
  zoom() {
    const { lens } = this;
    const sides = ['left', 'top', 'width', 'height'];
    const rectangle = () => Object.fromEntries(sides.map(side => [side, lens.style[side]]));
    const before = rectangle();
    this.follow();
    if (calm() || !before.width || lens.hidden) return;
    lens.animate([before, rectangle()], { duration: 500, easing: 'ease-in-out' });
  }

  // The frame lies round the part, also where this has become larger.
  follow() {
    const part = this.number === null ? null : this.step.part(this.widget.root);
    if (!part?.checkVisibility()) return void (this.lens.hidden = true);
    const [frame, box] = [this.widget.root, part].map(each => each.getBoundingClientRect());
    this.lens.hidden = false;
    const { style } = this.lens;
    style.left = `${box.left - frame.left - 4}px`;
    style.top = `${box.top - frame.top - 4}px`;
    style.width = `${box.width + 8}px`;
    style.height = `${box.height + 8}px`;
  }
}

// --- a tour: from the networks to a layer, and to the one sum under a pixel

const quarterOn = ({ state }, { turn }) => state.turn !== turn && state.turn % 90 === 0;
const TURN = [{
  level: 'network',
  words: 'Turn the picture: drag it, or press the arrow keys on the slider. Watch the answers.',
  part: root => root.querySelector('.dial'),
  memory: ({ state }) => ({ turn: state.turn }),
  done: ({ state }, { turn }) => near(state.turn, turn) >= 20,
}, {
  level: 'network',
  words: 'Turn on to a quarter turn: 90°, 180° or 270°. Which network says what it said upright?',
  part: root => root.querySelector('.cards'),
  memory: () => ({ turn: 0 }),
  done: quarterOn,
}, {
  level: 'layer',
  words: 'Now look into a network. Open “More”, if it is closed, and choose another layer. Each '
    + 'panel is a map of the layer; the arrows show where each of them went.',
  part: root => [...root.querySelectorAll('.card:not([hidden]) .maps')]
    .find(each => each.checkVisibility()) ?? root.querySelector('.more summary'),
  memory: ({ state }) => ({ layer: state.layer }),
  done: ({ state, root }, { layer }) => state.layer !== layer
    && root.querySelector('.maps').checkVisibility(),
  control: root => [...root.querySelectorAll('.more:not([open]) summary, select.layer')]
    .find(each => each.checkVisibility()),
}, {
  level: 'pixel',
  words: 'Click a pixel of a map of the turned picture (with keys: an arrow key on a map). One '
    + 'pixel is one sum: filter times patch, from every map of the layer before.',
  part: root => [...root.querySelectorAll('.card:not([hidden]) .after')]
    .find(each => each.checkVisibility()) ?? root.querySelector('.more summary'),
  begin: widget => widget.toConvolution(),
  memory: ({ state }) => ({ pixel: state.pixel }),
  done: ({ state }, { pixel }) => Boolean(state.pixel) && state.pixel !== pixel,
  control: root => [...root.querySelectorAll('.more:not([open]) summary, .after button')]
    .find(each => each.checkVisibility()),
}, {
  level: 'pixel',
  words: 'Here is that sum, number by number. Turn the picture on by a quarter: the pixel now has '
    + 'another sum. In the p4 network the old one is in the next map, where the ring has gone.',
  part: root => [...root.querySelectorAll('.sum')].find(each => each.checkVisibility())
    ?? root.querySelector('.dial'),
  memory: ({ state }) => ({ turn: state.turn }),
  done: quarterOn,
  act: ['Turn on by a quarter', widget => widget.glide(widget.step(1))],
}];

// --- a tour: from the picture to a layer, and to the one sum under a pixel

// the reader has chosen another pixel
const anotherPixel = {
  memory: ({ state }) => ({ asks: String(state.asks) }),
  done: ({ state }, { asks }) => String(state.asks) !== asks,
  control: root => root.querySelector('.asks'),
};

const ASK = [{
  level: 'network',
  words: 'Turn the picture on by a quarter: the button ⟲ 90°, or its ring. Each panel says how far '
    + 'its map did not go along.',
  part: root => root.querySelector('.dial'),
  memory: ({ state }) => ({ turn: state.turn }),
  done: ({ state }, { turn }) => state.turn !== turn && state.turn % 90 === 0,
  control: root => root.querySelector('.quarter'),
}, {
  level: 'layer',
  words: 'Choose another panel by its name: its map is laid over the large picture. Above, the map '
    + 'before the picture was moved; below, the map now.',
  part: root => root.querySelector('.views'),
  memory: ({ state }) => ({ panel: state.panel }),
  done: ({ state }, { panel }) => state.panel !== panel,
  control: root => root.querySelector('.name[aria-pressed="false"]'),
}, {
  level: 'pixel',
  words: 'Point at another pixel of the large picture (with keys: the arrows on it). Every pixel '
    + 'has a map of its own.',
  part: root => root.querySelector('.asks'),
  ...anotherPixel,
}, {
  level: 'pixel',
  words: 'Here is what this one pixel computes, number by number. Choose a pixel once more: which '
    + 'of the numbers change?',
  part: root => root.querySelector('.sum'),
  ...anotherPixel,
}];

// A canvas with its numbers, which show where it is large.
function numbered(canvas, values, [height, width], most) {
  const box = make('span', { className: 'numbered' }, canvas);
  if (height * width > 25) return box;
  const high = Math.max(...values);
  const low = Math.min(0, ...values);
  const dark = v => (most ? Math.abs(v) > .55 * most : (v - low) / (high - low || 1) > .55);
  const numbers = [...values].map(v => make('b', {
    textContent: decimal(v), className: dark(v) ? 'dark' : '',
  }));
  const grid = make('span', { className: 'numbers', ariaHidden: true }, ...numbers);
  grid.style.setProperty('--k', width);
  box.append(grid);
  return box;
}

function guide(widget, kind) {
  return new Tour(widget, { turn: TURN, attention: ASK }[kind]);
}

export { guide, numbered };
