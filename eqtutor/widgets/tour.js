// Somebody shows the reader around: a few steps, each of which points at its part, says what to do,
// and sees when it is done. Nothing waits for it: every control works as ever, and one may go on,
// back or away at any time.
import { calm, make } from './shared.js';

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

export { Tour };
