// From a picture to feature maps on G and back: every stage of a network in one drawing, as it was
// and now. The right side is empty until the picture moves; a panel has the colour of its pose, and
// says from which pose its map has come.
import { calm, draw, make, nameOf, paintInk, paintPicture, placeMark, short } from './shared.js';

const EXACT = 1e-6; // as in turn.js
const POSES = 4; // colours: a mirrored pose has its turn's again, in dashes
const [FADE, LATER] = [250, 150]; // milliseconds: how a stage fills, and how much after the other

class Stages {
  constructor(widget) {
    this.widget = widget;
    this.root = widget.root.querySelector('.chain');
    drawDown(this.root);
    this.side = this.root.querySelector('.sides :last-child');
    this.steps = [...this.root.querySelectorAll('.step')].map((box, i) => {
      const rows = ['before', 'after'].map(name => box.querySelector(`.${name}`));
      return { box, rows, verdict: box.querySelector('.verdict'), ...widget.spec.stages[i] };
    });
  }

  show(scene) {
    const { touched, state } = this.widget;
    if (touched && this.root.classList.contains('waits')) this.fill();
    this.root.classList.toggle('waits', !touched);
    const mirrored = state.mirror ? 'mirrored, ' : '';
    const turned = `${mirrored}turned by ${state.turn}°`;
    this.side.textContent = touched ? turned : 'fills as you turn it';
    this.words = this.steps.map(step => this.step(step, scene)).filter(Boolean);
  }

  // Stage after stage, when the picture moves for the first time.
  fill() {
    if (calm()) return;
    this.steps.forEach(({ rows }, i) => rows[1].querySelectorAll('canvas').forEach(canvas => {
      canvas.animate({ opacity: [0, 1] }, { duration: FADE, delay: LATER * i, fill: 'backwards' });
    }));
  }

  step(step, { state, sights: [sight], picture, moved, place }) {
    const { eye, values } = sight;
    const seen = step.layer === 'input' ? { poses: false, targets: null }
      : eye.compare(step.layer, values, state);
    const [turnNames, from] = [eye.turns.map(nameOf), this.sources(seen, place)];
    const maps = step.layer === 'input' ? [picture, moved] : [seen.before, seen.after];
    maps.forEach((value, r) => {
      this.panels(step, r, value.shape);
      this.paint(step, r, value, maps[0]);
      this.label(step, r, seen.poses ? turnNames : [], r && from);
      this.ring(step.rows[r], value.shape.at(-1), state, r, eye, step.layer);
    });
    this.pixel(step, state);
    return this.judge(step, seen, state, place);
  }

  // Of each pose the one whose map it holds; null between the elements.
  sources({ targets }, { exact }) {
    if (!targets || !exact || !this.widget.touched) return null;
    return targets.map((_, pose) => targets.indexOf(pose));
  }

  countOf(shape) {
    return shape.length === 4 ? shape[1] : 1;
  }

  // Panels are made once: a canvas with a ring, in the frame of the pose, and a line of words.
  panels(step, r, shape) {
    const row = step.rows[r];
    const n = this.countOf(shape);
    row.style.setProperty('--h', shape.at(-2));
    row.style.setProperty('--w', shape.at(-1));
    if (row.children.length === n) return;
    row.replaceChildren(...Array.from({ length: n }, (_, i) => {
      const sheet = make('span', { className: n > 1 ? `sheet pose${i % POSES}` : 'sheet' },
        make('canvas'), make('i', { className: 'spot' }));
      if (n > 1 && this.widget.group.turns[i]?.mirror) sheet.classList.add('mirrored');
      const clicks = r === 1 && step.layer !== 'input';
      const box = make(clicks ? 'button' : 'div', {}, sheet, make('small'));
      if (clicks) this.listen(box, step, i);
      return box;
    }));
  }

  listen(box, step, i) {
    box.type = 'button';
    box.addEventListener('click', event => {
      const frame = box.querySelector('canvas').getBoundingClientRect();
      const n = Number(step.rows[1].style.getPropertyValue('--w'));
      const at = (value, start, length) => {
        const share = event.detail ? (value - start) / length : .5;
        return Math.min(Math.max(Math.floor(share * n), 0), n - 1);
      };
      const [y, x] = [at(event.clientY, frame.top, frame.height),
        at(event.clientX, frame.left, frame.width)];
      this.widget.set({ layer: step.layer, channel: 0, pixel: { network: 0, panel: i, y, x } });
    });
  }

  paint(step, r, value, first) {
    const row = step.rows[r];
    const { inks } = this.widget;
    if (row.data === value.data && row.inks === inks) return; // stands still: is not painted again
    Object.assign(row, { data: value.data, inks });
    const [height, width] = value.shape.slice(-2);
    const canvases = [...row.querySelectorAll('canvas')];
    if (step.layer === 'input') return void paintPicture(canvases[0], value, inks);
    const high = first.data.reduce((a, b) => Math.max(a, b), 0);
    const low = first.data.reduce((a, b) => Math.min(a, b), 0);
    canvases.forEach((canvas, i) => {
      const plane = value.data.subarray(i * height * width, (i + 1) * height * width);
      paintInk(canvas, plane, [height, width], low, high, inks);
    });
  }

  // Under a panel its pose, and in the turned row where its map has come from.
  label(step, r, names, from) {
    const waits = r === 1 && !this.widget.touched;
    [...step.rows[r].children].forEach((box, i) => {
      const key = [names[i], from?.[i], waits].join();
      if (box.key === key) return;
      box.key = key;
      const chip = pose => make('i', { className: `chip pose${pose % POSES}` });
      const source = from && names.length ? ['← ', chip(from[i]), names[from[i]]] : [];
      box.querySelector('small').replaceChildren(...(names.length ? [chip(i), names[i]] : []),
        make('br'), ...source);
      const moved = source.length ? `, the map of ${names[from[i]]}, turned` : '';
      const what = `${step.name}${names.length ? `, pose ${names[i]}` : ''}${moved}`;
      if (box.type) box.setAttribute('aria-label', `${what}: how its middle is computed`);
    });
  }

  ring(row, size, state, r, eye, layer) {
    const place = state.spot && (layer === 'input' ? state.spot : eye.placeIn(layer, state.spot));
    row.classList.toggle('follows', Boolean(place) && (r === 0 || this.widget.touched));
    if (place) placeMark(row.style, place, size, r === 1 ? state : null);
  }

  // The pixel whose sum is shown.
  pixel(step, { pixel, layer }) {
    step.rows[1].querySelector('.pixel')?.remove();
    if (!pixel || layer !== step.layer) return;
    const mark = make('span', { className: 'pixel' });
    mark.style.top = `${(100 * pixel.y) / step.rows[1].style.getPropertyValue('--h')}%`;
    mark.style.left = `${(100 * pixel.x) / step.rows[1].style.getPropertyValue('--w')}%`;
    step.rows[1].children[pixel.panel]?.querySelector('.sheet').append(mark);
  }

  judge(step, { error, targets }, { turn, mirror }, { exact }) {
    if (!step.verdict) return '';
    const tested = exact && this.widget.touched && (turn !== 0 || mirror);
    const holds = error <= EXACT;
    step.verdict.className = `verdict ${tested ? (holds ? 'good' : 'bad') : ''}`;
    const along = targets ? 'turned and gone to other poses' : 'turned';
    const said = holds ? `✓ ${along}, nothing else. Error ${short(error)}.`
      : `✗ not only ${along}. Error ${error.toPrecision(2)}.`;
    step.verdict.textContent = tested ? said : '';
    return tested ? `${step.name}: ${said}` : '';
  }
}

// Arrows between the stages.
function drawDown(root) {
  for (const box of root.querySelectorAll('.down')) {
    const svg = draw('svg', { viewBox: '0 0 20 14', 'aria-hidden': true });
    svg.append(draw('path', { d: 'M10 0V11M5 7L10 13L15 7' }));
    box.replaceChildren(svg);
  }
}

export { Stages };
