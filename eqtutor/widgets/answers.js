// The answers at every angle: a curve for each network, with a point that moves as the picture
// turns; whoever drags the chart turns the picture. The curves were measured, or the networks give
// them in the page, in slices of time.
import { clamp, draw, make, modulo, move, percent } from './shared.js';

const STEPS = [12, 4, 2]; // degrees: first a rough curve, then a fine one
const SLICE = 8; // milliseconds at a time, so that the hand is never kept waiting
const [LEFT, RIGHT, TOP, BELOW] = [44, 14, 8, 18]; // what the chart leaves round its curves

class Answers {
  constructor(widget) {
    this.widget = widget;
    this.svg = widget.root.querySelector('.answers > svg');
    this.grid = draw('g');
    this.drawn = draw('g');
    this.svg.append(this.grid, this.drawn);
    const { curves } = widget.spec;
    // angle -> [share, the copy that was read]; in the order of the angles
    this.known = widget.eyes.map(({ label }) => {
      return new Map(curves?.[label].map(([angle, value]) => [angle, [value, 0]]) ?? []);
    });
    const legend = widget.eyes.map(({ label }, i) => {
      const sample = draw('svg', { width: 26, height: 6, 'aria-hidden': true });
      sample.append(draw('path', { class: `line line${i}`, d: 'M0 3H26' }));
      return make('span', {}, sample, label);
    });
    this.svg.parentElement.querySelector('figcaption .what').after(...legend);
    new ResizeObserver(() => this.measure()).observe(this.svg);
    this.measure();
    this.listen();
  }

  listen() {
    let held = false;
    const turn = event => {
      const box = this.svg.getBoundingClientRect();
      const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
      this.widget.set({ turn: this.widget.snap(360 * clamp(share, 0, 1)) });
    };
    this.svg.addEventListener('pointerdown', event => {
      if (event.button) return;
      event.preventDefault();
      this.svg.setPointerCapture(event.pointerId);
      this.widget.takeHold();
      held = true;
      turn(event);
    });
    this.svg.addEventListener('pointermove', event => held && turn(event));
    this.svg.addEventListener('pointerup', () => (held = false));
    this.svg.addEventListener('pointercancel', () => (held = false));
  }

  // --- where things are

  measure() {
    this.size = [this.svg.clientWidth || 400, this.svg.clientHeight || 160];
    const [width, height] = this.size;
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    const lines = [0, .25, .5, .75, 1].flatMap(share => {
      const y = this.y(share);
      return [draw('path', { class: 'grid', d: `M${LEFT} ${y}H${width - RIGHT}` }),
        draw('text', { x: LEFT - 6, y: y + 4, 'text-anchor': 'end' }, percent(share))];
    });
    const below = [0, 90, 180, 270, 360].map(angle => {
      const place = { x: this.x(angle), y: height - 3, 'text-anchor': 'middle' };
      return draw('text', place, `${angle}°`);
    });
    this.grid.replaceChildren(...lines, ...below);
    this.widget.request();
  }

  x(angle) {
    return LEFT + ((this.size[0] - LEFT - RIGHT) * angle) / 360;
  }

  y(share) {
    return TOP + (this.size[1] - TOP - BELOW) * (1 - share);
  }

  // --- the curves that the networks give: of how sure each is of what it says upright

  sweep(picture, mirror) {
    const { eyes, spec } = this.widget;
    if (spec.curves || (this.picture === picture && this.mirror === mirror)) return;
    Object.assign(this, { picture, mirror, ticket: {} });
    this.known.forEach(known => known.clear());
    const angles = new Set(STEPS.flatMap(step => {
      return Array.from({ length: 360 / step }, (_, i) => i * step);
    }));
    const rest = [...angles];
    const { ticket } = this;
    const work = () => {
      const until = performance.now() + SLICE;
      while (rest.length && performance.now() < until && this.ticket === ticket) {
        const turn = rest.shift();
        const moved = move(picture, { turn, mirror });
        eyes.forEach((eye, i) => this.known[i].set(turn, eye.answer(moved, picture)));
      }
      if (this.ticket !== ticket) return;
      this.drawCurves();
      if (rest.length) setTimeout(work);
    };
    setTimeout(work);
  }

  get isDone() {
    return this.known.every(known => known.size >= 360 / STEPS.at(-1));
  }

  // Sorted points of a network, the first one again at 360°.
  points(i) {
    const points = [...this.known[i]].sort(([a], [b]) => a - b);
    const first = points[0];
    return first?.[0] === 0 && points.at(-1)[0] < 360 ? [...points, [360, first[1]]] : points;
  }

  // Where another copy begins to win: between which angles, and the two ends of the curve.
  jumps(i) {
    const points = this.points(i);
    return points.slice(1).flatMap(([angle, [value, copy]], k) => {
      const [before, [other, last]] = points[k];
      const ends = [[before, other], [angle, value]];
      return copy === last ? [] : [{ angle: (before + angle) / 2, ends }];
    });
  }

  // The value at an angle, on a straight line between its neighbours.
  at(i, angle) {
    if (this.known[i].has(angle)) return { value: this.known[i].get(angle)[0], exact: true };
    const points = this.points(i);
    const next = points.findIndex(([a]) => a > angle);
    if (next < 1) return null;
    const [[a, [low]], [b, [high]]] = [points[next - 1], points[next]];
    return { value: low + ((high - low) * (angle - a)) / (b - a), exact: false };
  }

  // --- what is seen

  show({ state, sights, picture }) {
    this.sweep(picture, state.mirror);
    this.now = sights.map((sight, i) => {
      if (!sight) return null;
      const own = this.widget.spec.curves ? this.at(i, state.turn)
        : { value: sight.scores.shares[sight.start.top], exact: true };
      return own && { ...own, label: sight.eye.label };
    });
    this.drawCurves();
    const said = this.now.filter(Boolean).map(({ label, value }) => `${label} ${percent(value)}`);
    const what = this.svg.parentElement.querySelector('.what').textContent;
    this.svg.setAttribute('aria-label', `${what}; at ${state.turn}°: ${said.join(', ')}`);
    sights.forEach((sight, i) => {
      const rate = this.widget.root.querySelectorAll('.rate')[i];
      if (rate && this.now[i]) rate.textContent = this.rate(this.now[i], state);
    });
  }

  rate({ value, exact }, { turn }) {
    return `${exact ? '' : 'about '}${percent(value)} of the test digits are read rightly at `
      + `${turn}°.`;
  }

  drawCurves() {
    const { turn } = this.widget.state;
    const bottom = this.size[1] - BELOW;
    const now = draw('path', { class: 'now', d: `M${this.x(turn)} ${TOP}V${bottom}` });
    const parts = this.known.flatMap((_, i) => (this.now?.[i] ? this.curve(i, bottom) : []));
    const dots = (this.now ?? []).flatMap((own, i) => own ? [draw('circle', {
      class: `point line${i}`, cx: this.x(turn), cy: this.y(own.value), r: 6,
    })] : []);
    this.drawn.replaceChildren(now, ...parts, ...dots);
  }

  curve(i, bottom) {
    const points = this.points(i);
    const path = points.map(([angle, [value, copy]], k) => {
      const joins = k > 0 && points[k - 1][1][1] === copy;
      return `${joins ? 'L' : 'M'}${this.x(angle).toFixed(1)} ${this.y(value).toFixed(1)}`;
    });
    const line = draw('path', { class: `line line${i}`, d: path.join('') });
    const marks = this.widget.spec.curves ? points.map(([angle, [value]]) => draw('circle', {
      class: `mark line${i}`, cx: this.x(angle), cy: this.y(value), r: 2,
    })) : [];
    const jumps = this.jumps(i).flatMap(({ angle, ends }) => [
      draw('path', { class: 'jump', d: `M${this.x(modulo(angle, 360))} ${TOP}V${bottom}` }),
      ...ends.map(([a, value]) => draw('circle', {
        class: `end line${i}`, cx: this.x(a), cy: this.y(value), r: 3.5,
      }))]);
    return [line, ...jumps, ...marks];
  }
}

export { Answers };
