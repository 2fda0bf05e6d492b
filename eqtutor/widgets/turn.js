// Turn the picture: one state, many views. Dragging, slider, keys and Play change the state; at
// each frame the networks see the turned picture, and every view shows the same scene.
import { flipColumns, readNetwork, rotate, softmax } from './engine.js';
import { calm, clamp, decimal, Dial, draw, drawArrows, Gallery, graphOf, inksOf, make, modulo,
  move, movePlace, nameOf, near, nearestElement, networkOf, onTheme, paintInk, paintPicture,
  percent, placeMark, Scene, short, signed, turnOf } from './shared.js';

const EXACT = 1e-6; // what is larger at an element of the group is no rounding
const FLOOR = 1e-17; // the bottom of the curve: zero has no logarithm
const SNAP = 2.5; // degrees within which a dragged picture falls onto an element
const LEFT = 44; // pixels of a chart that are the names of its errors
const SPEED = 40; // degrees a second, while playing
const PAUSE = 900; // milliseconds on each element, while playing
const ALONG = .75; // the share of labels or arrows from which on they have turned along
const WHOLE = .999; // the share from which on all of them have
const [FAINT, LONG] = [.4, 2]; // the ink under arrows, and how much longer arrows are drawn

// what the operations of a graph are called on the page
const WORDS = {
  scale: 'norm', group_norm: 'norm', channel_norm: 'norm', relu: 'ReLU', reduce: 'pooled',
  self_attention: 'self-attention', window_sum: 'window sum',
};

// Which of the channels is largest, at each pixel.
function labelsOf({ data, shape }) {
  const area = shape.at(-1) * shape.at(-2);
  return Array.from({ length: area }, (_, i) => {
    let best = 0;
    for (let c = 1; c < shape[0]; c++) if (data[c * area + i] > data[best * area + i]) best = c;
    return best;
  });
}

// Ones where a channel is the largest: what is turned between pixels is then still a label.
function oneHot(value) {
  const area = value.shape.at(-1) * value.shape.at(-2);
  const data = new Float64Array(value.data.length);
  labelsOf(value).forEach((label, i) => (data[label * area + i] = 1));
  return { data, shape: value.shape };
}

// A field of arrows, right and up: the places move, and the arrows turn as well; a sign of −1
// leads back.
function moveArrows(value, state, sign = 1) {
  const { data, shape } = sign > 0 ? move(value, state) : carryBack(value, state, null);
  const area = shape.at(-1) * shape.at(-2);
  const angle = (sign * state.turn * Math.PI) / 180;
  const flip = state.mirror ? -1 : 1; // before the turn, and after the turn back
  const out = new Float64Array(data.length);
  for (let i = 0; i < area; i++) {
    const [a, b] = [sign > 0 ? flip * data[i] : data[i], data[i + area]];
    const right = a * Math.cos(angle) - b * Math.sin(angle);
    out[i] = sign > 0 ? right : flip * right;
    out[i + area] = a * Math.sin(angle) + b * Math.cos(angle);
  }
  return { data: out, shape };
}

// Inside a layer a feature map on the group may lie flat, channel after channel with its poses: the
// nodes that are so, and their shape as maps on the group.
function flatNodes(nodes, poses) {
  const flat = new Map();
  if (poses === 1) return flat;
  for (const { op, shape, inputs: [name] } of [...nodes].reverse()) {
    const before = nodes.find(node => node.name === name);
    if (op !== 'reshape' || shape.length !== 4 || shape[1] !== poses) continue;
    if (before?.shape.length === 3) flat.set(name, shape);
  }
  return flat;
}

// Undoes `move` on each map; pose q is then read where the element has put it.
function carryBack(value, { turn, mirror }, targets) {
  if (value.shape.length < 3) return value; // scores: nothing in them turns
  const still = rotate(value.data, value.shape, -turn);
  const { data, shape } = mirror ? flipColumns(still) : still;
  if (!targets) return { data, shape };
  const area = shape.at(-1) * shape.at(-2);
  const poses = targets.length;
  const out = new Float64Array(data.length);
  for (let plane = 0; plane * area < data.length; plane++) {
    const from = plane - (plane % poses) + targets[plane % poses];
    out.set(data.subarray(from * area, (from + 1) * area), plane * area);
  }
  return { data: out, shape };
}

// Largest difference over the largest value; between the elements inside a disc alone, because
// turned corners leave the frame.
function errorOf(a, b, inDisc) {
  if (b.shape.length < 3) {
    const apart = a.data.map((value, i) => Math.abs(value - b.data[i]));
    return Math.max(...apart) / (Math.max(...b.data.map(Math.abs)) || 1);
  }
  const [height, width] = b.shape.slice(-2);
  const radius = Math.min(height, width) / 2 - (inDisc ? 2 : -height);
  let difference = 0;
  let largest = 0;
  for (let row = 0; row * width < b.data.length; row++) {
    const y = (row % height) - (height - 1) / 2;
    for (let column = 0; column < width; column++) {
      const at = row * width + column;
      largest = Math.max(largest, Math.abs(b.data[at]));
      const x = column - (width - 1) / 2;
      if (x * x + y * y > radius * radius) continue;
      difference = Math.max(difference, Math.abs(a.data[at] - b.data[at]));
    }
  }
  return difference / (largest || 1);
}

const LABELS = ['#fc8d62', '#8da0cb', '#e78ac3', '#66c2a5', '#ffd92f', '#e5c494'];
const labelColour = label => LABELS[(label - 1) % LABELS.length];

// --- what one network sees

class Eye {
  constructor(graph, widget, tensors) {
    this.network = tensors ? readNetwork({ ...graph, tensors }) : networkOf(graph);
    this.nodes = new Map(graph.nodes.map(node => [node.name, node]));
    this.label = graph.name;
    this.widget = widget;
    this.turns = graph.group.matrices.map(turnOf);
    this.errors = new Map(); // angle -> error, of the layer and the picture that are shown
    const flat = flatNodes(graph.nodes, this.turns.length);
    const read = node => (flat.has(node.name) ? { ...node, shape: flat.get(node.name) } : node);
    this.maps = graph.nodes.filter(node => this.isMap(node)).map(read);
    this.choice = graph.nodes.find(({ op }) => op === 'choose');
  }

  // What a layer gave; a reshape or a constant inside a layer goes by no layer's name, and a kernel
  // for each pixel is no map: it turns otherwise.
  isMap({ name, op, shape }) {
    if (op === 'write_kernels') return false;
    const poses = shape.length === 4 ? shape[1] : 1;
    return shape.length > 2 && shape.at(-1) > 1 && shape.at(-1) === shape.at(-2)
      && [1, this.turns.length].includes(poses) && !/(^|\.)(reshape|constant)(_\d+)?$/.test(name);
  }

  // The layer of that name, or what stands at the same depth.
  layer(name) {
    const exact = this.maps.find(layer => layer.name === name);
    if (exact) return exact;
    const others = this.widget.eyes[0].maps;
    const depth = others.findIndex(layer => layer.name === name) / others.length;
    return this.maps[clamp(Math.floor(depth * this.maps.length), 0, this.maps.length - 1)];
  }

  run({ data, shape }) {
    const { mean, std } = this.widget.spec;
    const area = shape[1] * shape[2];
    return this.network.run(data.map((v, i) => {
      const channel = Math.floor(i / area) % mean.length;
      return (v - mean[channel]) / std[channel];
    }));
  }

  upright(picture) {
    if (this.picture !== picture) {
      this.picture = picture;
      this.values = this.run(picture);
    }
    return this.values;
  }

  see(state, picture, moved) {
    const judged = this.widget.spec.face === 'answers';
    const layer = judged ? this.network.output : this.layer(state.layer).name;
    const first = this.upright(picture);
    const atStart = state.turn === 0 && !state.mirror;
    const values = atStart ? first : this.run(moved);
    return {
      eye: this, values, layer, ...this.compare(layer, values, state),
      scores: this.scores(values), start: this.scores(first),
      outcome: this.outcome(first, values, state),
    };
  }

  // A layer of the upright picture and of the moved one: carried back, how far is it from itself?
  compare(layer, values, state) {
    const { shape } = this.layer(layer);
    const [before, after] = [this.values, values].map(all => {
      const value = all.get(layer);
      return layer === this.network.output ? value : { data: value.data, shape };
    });
    const poses = before.shape.length === 4 && before.shape[1] > 1;
    const own = nearestElement(this.turns, state);
    const targets = poses && own ? this.network.group.mul[own.element] : null;
    const arrows = this.widget.spec.output === 'arrows' && layer === this.network.output;
    const back = arrows ? moveArrows(after, state, -1) : carryBack(after, state, targets);
    const error = errorOf(back, before, !this.widget.at(state).exact);
    return { before, after, back, error, targets, poses };
  }

  // How sure it is, of a moved picture, of what it says of the upright one; and the copy it read.
  answer(moved, picture) {
    const { top } = this.scores(this.upright(picture));
    const values = this.run(moved);
    return [this.scores(values).shares[top], this.copyOf(values)];
  }

  // Of a network that reads one of several copies: which one.
  copyOf(values) {
    if (!this.choice) return 0;
    const scores = values.get(this.choice.inputs[0]).data;
    return scores.indexOf(Math.max(...scores));
  }

  // A picture that comes out (labels of the pixels, or arrows), and what it ought to be: what
  // came out of the upright picture, moved along. `same` is the share that is so.
  outcome(first, values, state) {
    const kind = this.widget.spec.output;
    if (!kind) return null;
    const [before, after] = [first, values].map(all => all.get(this.network.output));
    const input = values.get('input').data;
    const asked = kind === 'labels' ? move(oneHot(before), state) : moveArrows(before, state);
    const area = after.shape.at(-1) * after.shape.at(-2);
    const pixels = [...Array(area).keys()];
    if (kind === 'labels') {
      const [now, then] = [after, asked].map(labelsOf);
      const strokes = pixels.filter(i => now[i] || then[i]);
      const same = strokes.filter(i => now[i] === then[i]).length / (strokes.length || 1);
      return { now, then, same };
    }
    const { mean, std, ink } = this.widget.spec;
    const shown = pixels.filter(i => input[i] * std[0] + mean[0] > ink);
    const length = (a, i) => Math.hypot(a.data[i], a.data[i + area]);
    const apart = i => Math.hypot(
      after.data[i] - asked.data[i], after.data[i + area] - asked.data[i + area]);
    const total = shown.reduce((sum, i) => sum + Math.max(length(asked, i), length(after, i)), 0);
    const off = shown.reduce((sum, i) => sum + apart(i), 0) / (total || 1);
    return { now: after.data, then: asked.data, shown, same: Math.max(0, 1 - off) };
  }

  scores(values) {
    const { data, shape } = values.get(this.network.output);
    if (shape.length > 1) return null;
    const shares = softmax(data);
    const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]);
    const name = i => String(this.network.labels?.[i] ?? i);
    return { shares, names: shares.map((_, i) => name(i)), top: order[0], second: order[1] };
  }

  // Maps of one channel, one a pose; without poses, of a few channels.
  panels({ data, shape }, channel) {
    const area = shape.at(-1) * shape.at(-2);
    const first = this.firstPanel(shape, channel);
    return Array.from({ length: this.panelCount(shape) }, (_, i) => {
      return data.subarray((first + i) * area, (first + i + 1) * area);
    });
  }

  panelCount(shape) {
    const poses = shape.length === 4 ? shape[1] : 1;
    return poses > 1 ? poses : Math.min(4, shape[0]);
  }

  firstPanel(shape, channel) {
    if (shape.length === 4 && shape[1] > 1) return Math.min(channel, shape[0] - 1) * shape[1];
    return clamp(channel, 0, shape[0] - Math.min(4, shape[0]));
  }

  // [channel, pose] of a panel
  placeOf(shape, channel, panel) {
    const first = this.firstPanel(shape, channel);
    const poses = shape.length === 4 ? shape[1] : 1;
    return [Math.floor((first + panel) / poses), (first + panel) % poses];
  }

  names(sight, channel) {
    const { shape } = sight.before;
    const n = this.panels(sight.before, channel).length;
    return Array.from({ length: n }, (_, i) => {
      const [c, pose] = this.placeOf(shape, channel, i);
      return sight.poses ? nameOf(this.turns[pose]) : `channel ${c}`;
    });
  }

  // Where a place of the picture stands in the maps of a layer: windows leave out a rim, and steps
  // make the maps small.
  placeIn(layer, place) {
    const node = this.nodes.get(layer);
    if (!node) return place;
    const [row, column] = this.placeIn(node.inputs[0], place);
    if (!node.kernel_size || node.op === 'window_sum') return [row, column];
    const { kernel_size: size, stride, padding, dilation = [1, 1] } = node;
    return [row, column].map((i, k) => {
      return (i + padding[k] - (dilation[k] * (size[k] - 1)) / 2) / stride[k];
    });
  }

  // The same the other way round.
  placeFrom(layer, [row, column]) {
    const [first, second] = [[0, 0], [1, 1]].map(place => this.placeIn(layer, place));
    return [row, column].map((i, k) => (i - first[k]) / (second[k] - first[k]));
  }

  // The error of every layer, at an element of the group.
  layerErrors(values, state) {
    return this.maps.map(({ name }) => this.compare(name, values, state).error);
  }

  // How a value of a map came about: the convolution's terms, and what followed it value by value.
  explain(sight, place) {
    const at = indexOf(sight.after.shape, place);
    const steps = [];
    let node = this.nodes.get(sight.layer);
    while (node) {
      steps.unshift({ name: node.name, value: sight.values.get(node.name).data[at] });
      const sum = this.network.explain(sight.values, node.name, placeAt(node.shape, at));
      const unit = sight.poses && node.shape.length === 3 ? 'plane' : 'channel';
      if (sum) return { sum, steps, unit, posed: node.poses?.[1] > 1 };
      if (!['scale', 'relu', 'silu', 'sigmoid', 'tanh', 'reshape'].includes(node.op)) return null;
      node = this.nodes.get(node.inputs[0]);
    }
    return null;
  }
}

function indexOf(shape, [c, g, y, x]) {
  const poses = shape.length === 4 ? shape[1] : 1;
  return ((c * poses + g) * shape.at(-2) + y) * shape.at(-1) + x;
}

// [channel, pose, row, column] of a value by its number
function placeAt(shape, at) {
  const [height, width] = shape.slice(-2);
  const plane = Math.floor(at / (height * width));
  const poses = shape.length === 4 ? shape[1] : 1;
  return [Math.floor(plane / poses), plane % poses, Math.floor(at / width) % height, at % width];
}

// --- views: a pixel that is followed

class Sheet extends Dial {
  constructor(widget) {
    super(widget);
    this.mark = this.box.querySelector('.spot');
    this.where = widget.root.querySelector('.where');
    this.hint = this.where?.textContent;
    this.box.addEventListener('pointerleave', () => {
      if (!this.held && widget.state.spot) widget.set({ spot: null });
    });
  }

  // The pixel under the pointer is followed; a click holds it, another lets it go.
  point(event, click) {
    if (!this.where?.checkVisibility()) return;
    if (!click && (this.held || event.pointerType !== 'mouse')) return;
    const box = this.canvas.getBoundingClientRect();
    const size = this.widget.spec.shape[1];
    const at = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
    const inside = at.every(share => share >= 0 && share < 1);
    const place = at.map(share => Math.floor(share * size));
    const from = movePlace(place, size, this.widget.state, -1);
    const spot = inside ? from.map(i => clamp(Math.round(i), 0, size - 1)) : null;
    if (click) this.held = spot && !this.held;
    const same = String(spot) === String(this.widget.state.spot);
    if (!same) this.widget.set({ spot });
  }

  show(scene) {
    super.show(scene);
    const { state } = scene;
    this.mark.hidden = !state.spot;
    if (this.where) this.where.textContent = this.words(state);
    if (state.spot) placeMark(this.mark.style, state.spot, this.widget.spec.shape[1], state);
  }

  words(state) {
    if (!state.spot) return this.hint;
    const size = this.widget.spec.shape[1];
    const now = movePlace(state.spot, size, state).map(i => Math.round(i * 10) / 10);
    return `Row, column ${state.spot.join(', ')} is now at ${now.join(', ')}.`;
  }
}

// --- views: a network

class Card {
  constructor(widget, root, index) {
    Object.assign(this, { widget, root, index, lit: null });
    this.size = 12; // of a pixel of a picture that comes out
    for (const name of ['digit', 'words', 'bars', 'verdict', 'arrows', 'outcome', 'reads']) {
      this[name] = root.querySelector(`.${name}`);
    }
    this.rows = ['before', 'after', 'back'].map(name => root.querySelector(`.${name}`));
  }

  show({ state, sights, moved, place }) {
    const sight = sights[this.index];
    this.root.hidden = !sight;
    if (!sight) return;
    this.sight = sight;
    if (sight.scores) this.showScores(sight);
    this.digit.hidden = this.bars.hidden = !sight.scores;
    this.outcome.hidden = !sight.outcome;
    if (sight.outcome) this.showOutcome(sight, moved, state, place);
    this.showVerdict(sight, state, place);
    if (this.reads) this.showReads(sight);
    if (!this.arrows) return;
    this.showMaps(sight, state);
    this.showArrows(sight, place);
  }

  // The copy of the picture that a network reads.
  showReads({ eye, values }) {
    this.reads.hidden = !eye.choice;
    if (!eye.choice) return;
    const { data, shape } = values.get(eye.choice.name);
    const { mean, std } = this.widget.spec;
    const area = shape[1] * shape[2];
    const seen = data.map((v, i) => v * std[Math.floor(i / area)] + mean[Math.floor(i / area)]);
    paintPicture(this.reads.querySelector('canvas'), { data: seen, shape }, this.widget.inks);
    const turn = nameOf(eye.turns[eye.copyOf(values)]);
    this.reads.querySelector('span').textContent = `reads it turned by ${turn}`;
  }

  showScores({ scores, start }) {
    const { shares, names, top, second } = scores;
    this.digit.textContent = names[top];
    this.digit.classList.toggle('changed', top !== start.top);
    const sure = percent(shares[top]);
    this.words.textContent = this.arrows
      ? `says ${names[top]} (${sure}), then ${names[second]} (${percent(shares[second])})`
      : `${sure} sure`;
    if (this.bars.children.length !== names.length) {
      this.bars.replaceChildren(...names.map(name => make('i', { textContent: name.slice(0, 3) })));
    }
    shares.forEach((share, i) => this.bars.children[i].style.setProperty('--p', share));
  }

  // The turned picture, with what comes out drawn over it. A cross marks a label that is not the
  // upright one turned along; an arrow of dashes is where the upright arrow would have gone.
  showOutcome({ outcome }, { data, shape }, state, place) {
    const [height, width] = shape.slice(-2);
    const { size, outcome: canvas } = this;
    const { ink } = this.widget.inks;
    [canvas.width, canvas.height] = [width * size, height * size];
    const pen = canvas.getContext('2d');
    const colourOf = i => `rgb(${[0, 8, 16].map(shift => (ink[i] >> shift) & 255)})`;
    const faint = outcome.shown ? FAINT : 1; // under arrows
    for (let i = 0; i < height * width; i++) {
      const label = outcome.shown ? 0 : outcome.now[i];
      const [x, y] = [(i % width) * size, Math.floor(i / width) * size];
      const grey = colourOf(Math.round(255 * faint * clamp(data[i], 0, 1)));
      pen.fillStyle = label ? labelColour(label) : grey;
      pen.fillRect(x, y, size, size);
      if (outcome.shown || label === outcome.then[i]) continue;
      pen.strokeStyle = label ? '#000' : colourOf(255);
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x + 3, y + 3);
      pen.lineTo(x + size - 3, y + size - 3);
      pen.moveTo(x + size - 3, y + 3);
      pen.lineTo(x + 3, y + size - 3);
      pen.stroke();
    }
    if (outcome.shown) this.showField(pen, outcome, width);
    this.showShare(outcome, state, place);
    canvas.setAttribute('aria-label', `what comes out: ${this.words.textContent}`);
  }

  // Arrows, of which every fourth is drawn, and long.
  showField(pen, { now, then, shown }, width) {
    const { arrow, was } = this.widget.inks;
    const even = shown.filter(i => i % 2 === 0 && Math.floor(i / width) % 2 === 0);
    for (const [values, colour, dashes] of [[then, was, [5, 4]], [now, arrow, []]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = 3;
      for (const i of even) this.arrow(pen, i, width, values, dashes);
    }
  }

  arrow(pen, i, width, values, dashes) {
    const scale = LONG * this.size * this.widget.spec.arrow;
    const [x, y] = [(i % width + .5) * this.size, (Math.floor(i / width) + .5) * this.size];
    const [dx, dy] = [values[i] * scale, -values[i + values.length / 2] * scale];
    const tip = Math.min(9, Math.hypot(dx, dy) / 2);
    const angle = Math.atan2(dy, dx);
    pen.setLineDash(dashes);
    pen.beginPath();
    pen.moveTo(x - dx / 2, y - dy / 2);
    pen.lineTo(x + dx / 2, y + dy / 2);
    pen.stroke();
    pen.setLineDash([]);
    pen.beginPath();
    for (const side of [-2.6, 2.6]) {
      pen.moveTo(x + dx / 2, y + dy / 2);
      pen.lineTo(x + dx / 2 + tip * Math.cos(angle + side),
        y + dy / 2 + tip * Math.sin(angle + side));
    }
    pen.stroke();
  }

  // How much of it has turned along; nothing before the reader has turned.
  showShare({ same, shown }, { turn, mirror }, { exact }) {
    if ((turn === 0 && !mirror) || !this.widget.touched) {
      this.words.textContent = '';
      return;
    }
    const along = same > WHOLE;
    const sign = exact ? (along ? '✓' : '✗') : '≈';
    const share = make('b', { textContent: `${sign} ${percent(same)}`,
      className: `share ${exact ? (along ? 'good' : 'bad') : ''}` });
    const what = shown ? 'arrows’ length' : 'strokes’ pixels';
    this.words.replaceChildren(share, ` of the ${what} turned along.`);
  }

  showVerdict(sight, state, place) {
    const { words, kind } = this.widget.verdict(sight, state, place);
    this.verdict.textContent = words;
    this.verdict.className = `verdict ${kind}`;
  }

  showMaps(sight, state) {
    const { eye } = sight;
    const names = eye.names(sight, state.channel);
    const maps = [sight.before, sight.after, sight.back];
    const first = eye.panels(sight.before, state.channel);
    const low = Math.min(...first.map(values => Math.min(...values)));
    const high = Math.max(...first.map(values => Math.max(...values)));
    this.rows.forEach((row, r) => {
      const size = maps[r].shape.slice(-2);
      const { inks } = this.widget;
      const now = { data: maps[r].data, layer: sight.layer, channel: state.channel, inks };
      // the maps of the upright picture stay as they are while it turns
      if (Object.entries(now).every(([key, value]) => row[key] === value)) return;
      Object.assign(row, now);
      this.build(row, names, r, size);
      eye.panels(maps[r], state.channel).forEach((values, i) => {
        paintInk(row.children[i].querySelector('canvas'), values, size, low, high, inks);
      });
    });
    this.showPixel(state.pixel, sight.after.shape);
    this.showSpot(sight, state);
  }

  // The pixel that is followed, in each row of maps.
  showSpot({ eye, layer, before, after }, state) {
    const place = state.spot && eye.placeIn(layer, state.spot);
    this.rows.forEach((row, r) => {
      const size = (r === 1 ? after : before).shape.at(-1);
      const inside = place?.every(i => i > -.6 && i < size - .4) ?? false;
      row.classList.toggle('follows', inside);
      if (inside) placeMark(row.style, place, size, r === 1 ? state : null);
    });
  }

  // Panels are made anew only where their number or their names change.
  build(row, names, r, [height, width]) {
    const key = names.join();
    row.style.setProperty('--h', height);
    row.style.setProperty('--w', width);
    if (row.key === key) return;
    row.key = key;
    this.root.style.setProperty('--n', names.length);
    this.root.classList.toggle('many', names.length > 4);
    row.replaceChildren(...names.map((name, i) => this.panel(name, i, r)));
  }

  panel(name, i, r) {
    const caption = make('small', { textContent: name });
    const turned = r === 1;
    const sheet = make('span', {}, make('canvas'), make('i', { className: 'spot' }));
    const box = make(turned ? 'button' : 'div', {}, sheet);
    box.append(caption);
    const source = () => (turned ? this.targets().indexOf(i) : i);
    for (const [event, lights] of [['pointerenter', true], ['focus', true],
      ['pointerleave', false], ['blur', false]]) {
      box.addEventListener(event, () => this.light(lights ? source() : null));
    }
    if (!turned) return box;
    box.type = 'button';
    box.setAttribute('aria-label', `${this.root.getAttribute('aria-label')}, map ${name} of the `
      + 'turned picture: arrow keys choose a pixel');
    box.addEventListener('click', event => this.pick(i, event));
    box.addEventListener('keydown', event => this.walk(i, event));
    return box;
  }

  targets() {
    const n = this.rows[0].children.length;
    return this.sight.targets ?? Array.from({ length: n }, (_, i) => i);
  }

  // A click on a map; the Enter key, which has no place, takes the middle.
  pick(panel, event) {
    const [height, width] = this.sight.after.shape.slice(-2);
    const box = this.rows[1].children[panel].querySelector('canvas').getBoundingClientRect();
    const share = (at, start, length) => (event.detail ? (at - start) / length : .5);
    const y = clamp(Math.floor(share(event.clientY, box.top, box.height) * height), 0, height - 1);
    const x = clamp(Math.floor(share(event.clientX, box.left, box.width) * width), 0, width - 1);
    this.choose(panel, y, x);
  }

  // A pixel of a map: its sum is shown, and its place is followed.
  choose(panel, y, x) {
    const { after, layer, eye } = this.sight;
    const { state, spec, dial } = this.widget;
    const back = movePlace([y, x], after.shape.at(-1), state, -1);
    const spot = eye.placeFrom(layer, back).map(i => clamp(Math.round(i), 0, spec.shape[1] - 1));
    dial.held = true;
    this.widget.set({ pixel: { network: this.index, panel, y, x }, spot });
  }

  walk(panel, event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!Object.hasOwn(step, event.key)) return;
    event.preventDefault();
    const [height, width] = this.sight.after.shape.slice(-2);
    const now = this.widget.state.pixel;
    const here = now && now.network === this.index && now.panel === panel;
    const [y, x] = here ? [now.y, now.x] : [Math.floor(height / 2), Math.floor(width / 2)];
    const [down, right] = step[event.key];
    this.choose(panel, clamp(y + down, 0, height - 1), clamp(x + right, 0, width - 1));
  }

  showPixel(pixel, shape) {
    this.root.querySelector('.pixel')?.remove();
    if (!pixel || pixel.network !== this.index) return;
    const [height, width] = shape.slice(-2);
    const mark = make('span', { className: 'pixel' });
    mark.style.top = `${(100 * pixel.y) / height}%`;
    mark.style.left = `${(100 * pixel.x) / width}%`;
    this.rows[1].children[pixel.panel]?.append(mark);
  }

  showArrows(sight, place) {
    this.arrows.classList.toggle('between', !place.exact);
    const targets = this.targets();
    const words = targets.map((to, from) => `${from} to ${to}`).join(', ');
    this.arrows.setAttribute('aria-label', `where each map goes: ${words}`);
    if (this.ways !== words) drawArrows(this.arrows, targets);
    this.ways = words;
    this.light(this.lit);
  }

  light(source) {
    this.lit = source;
    const target = source === null ? null : this.targets()[source];
    [...this.arrows.children].forEach((arrow, i) => arrow.classList.toggle('lit', i === source));
    this.rows.forEach((row, r) => [...row.children].forEach((panel, i) => {
      panel.classList.toggle('lit', i === (r === 1 ? target : source));
    }));
  }
}

// --- what is drawn over a picture that comes out

class Legend {
  constructor(widget) {
    this.box = widget.root.querySelector('.legend');
    if (!this.box) return;
    const arrow = dashes => {
      const sample = draw('svg', { width: 26, height: 8, 'aria-hidden': true });
      sample.append(draw('path', { class: dashes ? 'was' : 'is', d: 'M0 4H24M19 0L25 4L19 8' }));
      return sample;
    };
    const [{ network }] = widget.eyes;
    const names = widget.spec.output === 'labels' ? network.labels ?? [] : [];
    const label = (name, i) => {
      const sample = make('i', { className: 'sample', ariaHidden: true });
      sample.style.setProperty('--label', labelColour(i));
      return make('span', {}, sample, name);
    };
    const parts = names.map((name, i) => (i ? label(name, i) : '')).filter(Boolean);
    if (widget.spec.output === 'labels') {
      parts.push(make('span', { textContent: '× not the upright label, turned along' }));
    } else {
      parts.push(make('span', {}, arrow(false), ' what comes out'),
        make('span', {}, arrow(true), ' the upright arrow, turned along'));
    }
    this.box.replaceChildren(...parts);
  }

  show() {}
}

// --- views: the error against the angle

class Chart {
  constructor(widget, name) {
    this.widget = widget;
    this.svg = widget.root.querySelector(`.${name} > svg`);
    this.size = [400, 120];
    this.grid = draw('g');
    this.drawn = draw('g');
    this.svg.append(this.grid, this.drawn);
    // measured when it changes: to ask at each frame would lay the page out twice
    new ResizeObserver(() => this.measure()).observe(this.svg);
  }

  measure() {
    this.size = [this.svg.clientWidth || 400, this.svg.clientHeight || 120];
    this.grid.replaceChildren();
    this.widget.request();
  }

  // The height of an error: logarithmic, from the bottom up.
  heightOf(error) {
    const [, height] = this.size;
    const share = (Math.log10(clamp(error, FLOOR, 10)) + 17) / 18;
    return height - 18 - (height - 24) * share;
  }

  // Lines of the grid and their errors; then what is written below, at which x.
  drawGrid(right, below) {
    const [width, height] = this.size;
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    for (const [error, name] of [[1, '1'], [1e-4, '1e-4'], [1e-8, '1e-8'], [1e-12, '1e-12'],
      [FLOOR, '0']]) {
      const y = this.heightOf(error);
      this.grid.append(draw('path', { class: 'grid', d: `M${LEFT} ${y}H${right}` }),
        draw('text', { x: LEFT - 7, y: y + 4, 'text-anchor': 'end' }, name));
    }
    for (const [x, name] of below) {
      this.grid.append(draw('text', { x, y: height - 3, 'text-anchor': 'middle' }, name));
    }
  }

  // A line through points [x, error], broken where they are not neighbours.
  line(eye, points, joins, now) {
    const style = `line line${this.widget.eyes.indexOf(eye)}`;
    const path = points.map(([x, error], i) => {
      return `${joins(i) ? 'L' : 'M'}${x.toFixed(1)} ${this.heightOf(error).toFixed(1)}`;
    });
    this.drawn.append(draw('path', { class: style, d: path.join('') }));
    if (!now) return;
    const place = { cx: now[0], cy: this.heightOf(now[1]) };
    this.drawn.append(draw('circle', { class: style, ...place, r: 3.5 }));
  }
}

class Curve extends Chart {
  constructor(widget) {
    super(widget, 'angles');
    const names = widget.eyes.map(({ label }, i) => {
      const sample = draw('svg', { width: 26, height: 6, 'aria-hidden': true });
      sample.append(draw('path', { class: `line line${i}`, d: 'M0 3H26' }));
      return make('span', {}, sample, label);
    });
    if (names.length > 1) this.svg.parentElement.querySelector('figcaption').append(...names);
  }

  x(degrees) {
    return LEFT + ((this.size[0] - LEFT - 18) * degrees) / 360;
  }

  show({ state, sights }) {
    const below = [0, 90, 180, 270, 360].map(degrees => [this.x(degrees), `${degrees}°`]);
    if (!this.grid.children.length) this.drawGrid(this.x(360), below);
    const now = draw('path', { class: 'now', d: `M${this.x(state.turn)} 4V${this.size[1] - 18}` });
    this.drawn.replaceChildren(now);
    const shown = sights.filter(Boolean);
    shown.forEach(({ eye }) => {
      // angles that were visited, joined where they lie near each other
      const visited = [...eye.errors].sort(([a], [b]) => a - b);
      const points = visited.map(([degrees, error]) => [this.x(degrees), error]);
      const joins = i => i > 0 && visited[i][0] - visited[i - 1][0] <= 15;
      const error = eye.errors.get(state.turn);
      this.line(eye, points, joins, error === undefined ? null : [this.x(state.turn), error]);
    });
    const words = shown.map(sight => `${sight.eye.label} ${short(sight.error)}`).join(', ');
    this.svg.setAttribute('aria-label', `error at ${state.turn}°: ${words}`);
  }
}

// --- views: the error of layer after layer; a click chooses one

class Layers extends Chart {
  constructor(widget) {
    super(widget, 'layers');
    this.svg.addEventListener('click', event => {
      const box = this.svg.getBoundingClientRect();
      const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - 18);
      const { maps } = widget.eyes[0];
      const at = clamp(Math.round(share * (maps.length - 1)), 0, maps.length - 1);
      widget.set({ layer: maps[at].name, pixel: null });
    });
  }

  // Networks may be of different depth: each has the whole width.
  x(i, n) {
    return LEFT + ((this.size[0] - LEFT - 18) * i) / Math.max(n - 1, 1);
  }

  show({ state, sights, place }) {
    const { maps } = this.widget.eyes[0];
    const at = maps.findIndex(({ name }) => name === state.layer);
    const few = maps.map(({ name }) => name).join('  ').length < 36;
    const below = maps.map(({ name }, i) => [this.x(i, maps.length), few ? name : '']);
    const key = [maps.map(({ name }) => name), this.size].join();
    if (this.key !== key) {
      this.grid.replaceChildren();
      this.drawGrid(this.x(1, 2), below);
      this.key = key;
    }
    const x = this.x(at, maps.length);
    this.drawn.replaceChildren(draw('path', { class: 'now', d: `M${x} 4V${this.size[1] - 18}` }));
    const tested = place.exact && this.widget.touched && (state.turn !== 0 || state.mirror);
    const broken = [];
    for (const { eye, values } of tested ? sights.filter(Boolean) : []) {
      const errors = eye.layerErrors(values, state);
      const points = errors.map((error, i) => [this.x(i, errors.length), error]);
      this.line(eye, points, i => i > 0, points[at]);
      const first = eye.maps.find((_, i) => errors[i] > EXACT);
      const where = sights.length > 1 ? ` (${eye.label})` : '';
      if (first) broken.push(`${first.name.replace('layers.', '')}${where}`);
    }
    const words = broken.length ? `✗ first broken: ${broken.join(', ')}` : '✓ all layers hold';
    this.caption.textContent = tested ? words : 'Turn to an element of the group.';
    this.svg.setAttribute('aria-label', `error of each layer at ${state.turn}°: `
      + this.caption.textContent);
  }

  get caption() {
    return this.svg.parentElement.querySelector('.first');
  }
}

// --- views: the arithmetic of one pixel

class Sum {
  constructor(widget) {
    this.widget = widget;
    this.value = widget.root.querySelector('.sum .value');
    this.terms = widget.root.querySelector('.terms');
    this.hint = this.value.textContent;
  }

  show({ state, sights }) {
    const { pixel, channel } = state;
    const sight = pixel && sights[pixel.network];
    this.terms.replaceChildren();
    if (!sight) {
      this.value.textContent = this.hint;
      return;
    }
    const { shape } = sight.after;
    const place = [...sight.eye.placeOf(shape, channel, pixel.panel), pixel.y, pixel.x];
    const answer = sight.eye.explain(sight, place);
    const where = `${sight.eye.label}, row ${pixel.y}, column ${pixel.x}: `;
    if (!answer) {
      const value = decimal(sight.after.data[indexOf(shape, place)]);
      this.value.textContent = `${where}${value}. What makes it is no single sum here: choose a `
        + 'convolution, or what directly follows one.';
      return;
    }
    this.showSum(where, answer, sight.eye.turns, place[1]);
  }

  showSum(where, { sum, steps, unit, posed }, turns, pose) {
    const name = step => step.name.replace('layers.', '');
    const followed = steps.slice(1).map(step => ` → ${name(step)} ${decimal(step.value)}`).join('');
    const terms = [...sum.terms].sort((a, b) => Math.abs(b.sum) - Math.abs(a.sum));
    const largest = terms.slice(0, 3);
    const rest = terms.slice(3).reduce((total, term) => total + term.sum, 0);
    const others = terms.length > 3 ? `${signed(rest)} (${terms.length - 3} smaller terms)` : '';
    const bias = sum.bias ? `${signed(sum.bias)} (bias)` : '';
    const sums = largest.map(term => signed(term.sum)).join('');
    const shown = sums.startsWith(' + ') ? sums.slice(3) : sums.trim();
    this.value.textContent = `${where}filter × patch = ${shown}${others}${bias} = `
      + `${decimal(sum.value)}${followed}`;
    this.terms.append(...largest.map(term => this.term(term, turns, pose, unit, posed)));
  }

  term(term, turns, pose, unit, posed) {
    const [filter, patch] = [make('canvas'), make('canvas')];
    const size = term.size;
    const most = Math.max(...term.filter.map(Math.abs));
    const { inks } = this.widget;
    paintInk(filter, term.filter, size, -most, most, inks);
    paintInk(patch, term.patch, size, Math.min(0, ...term.patch), Math.max(...term.patch), inks);
    const turned = turns.length > 1 ? `turned by ${nameOf(turns[pose])}` : 'filter';
    const channel = `${unit} ${term.channel}`;
    const source = posed ? `${channel}, pose ${nameOf(turns[term.pose])}` : channel;
    const caption = make('figcaption', { textContent: `${turned}, from ${source}` });
    const value = make('span', { textContent: `= ${decimal(term.sum)}` });
    const guided = this.widget.root.querySelector('.tour');
    const numbered = guided ? eqtutorTour.numbered : canvas => canvas;
    const line = make('div', {}, numbered(filter, term.filter, size, most), '×',
      numbered(patch, term.patch, size), value);
    return make('figure', {}, line, caption);
  }
}

// --- the widget

class Turn extends Scene {
  constructor(root, number) {
    super(root, number ? `${number + 1}.` : '');
    this.group = { ...this.spec.group, turns: this.spec.group.matrices.map(turnOf) };
    this.eyes = [];
    for (const network of this.spec.networks) {
      this.eyes.push(new Eye(graphOf(network, this.spec.steps), this));
    }
    const { channel, turn } = this.spec;
    const layer = this.eyes[0].layer(this.spec.layer).name;
    const shown = this.eyes.map((_, i) => i);
    this.state = { turn, mirror: false, picture: '0', layer, channel, shown, pixel: null,
      spot: null };
    this.slider = root.querySelector('.turning input');
    this.inks = inksOf(root);
    this.dial = new Sheet(this);
    this.gallery = new Gallery(this);
    const cards = [...root.querySelectorAll('.card')].map((card, i) => new Card(this, card, i));
    this.views = [this.dial, this.gallery, ...cards, ...this.face()];
    if (root.querySelector('.tour')) this.views.push(eqtutorTour.guide(this, 'turn'));
    this.controls();
    this.readLetters();
    new ResizeObserver(() => this.request()).observe(root);
    onTheme(() => this.takeInks());
    this.begin();
  }

  // What stands beside the cards, or in their place.
  face() {
    const { face } = this.spec;
    if (face === 'answers') return [new eqtutorAnswers.Answers(this)];
    const legend = new Legend(this);
    if (face === 'maps') return [legend, new Curve(this), new Layers(this), new Sum(this)];
    return [new eqtutorStages.Stages(this), new Sum(this)];
  }

  // The nearest layer, from the one that is shown backwards, of whose values each is one sum.
  toConvolution() {
    const [eye] = this.eyes;
    const at = eye.maps.findIndex(({ name }) => name === this.state.layer);
    const sums = eye.maps.filter(({ op }) => op === 'convolution');
    const before = sums.findLast(node => eye.maps.indexOf(node) <= at && node.poses?.[1] > 1);
    const layer = before ?? sums.find(node => node.poses?.[1] > 1) ?? sums[0];
    if (layer && layer.name !== this.state.layer) this.set({ layer: layer.name, pixel: null });
  }

  // --- state

  set(change) {
    this.touched ||= 'turn' in change || 'mirror' in change;
    super.set(change);
  }

  become(change) {
    const forgets = ['picture', 'layer', 'mirror'].some(key => {
      return key in change && (change[key] !== this.state[key] || key === 'picture');
    });
    Object.assign(this.state, change);
    this.state.turn = modulo(Math.round(this.state.turn * 100) / 100, 360);
    if (forgets) this.eyes.forEach(eye => eye.errors.clear());
    this.request();
  }

  // --- the group

  // What the arrow keys and Play stop at.
  stops(mirror) {
    const alike = this.group.turns.filter(t => t.mirror === mirror);
    return [...alike].sort((a, b) => a.degrees - b.degrees);
  }

  at(state) {
    return nearestElement(this.group.turns, state) ?? { exact: false };
  }

  snap(turn) {
    const loose = modulo(Math.round(turn), 360);
    const stop = this.stops(this.state.mirror).find(t => near(t.degrees, loose) <= SNAP);
    return stop ? stop.degrees : loose;
  }

  // Degrees to the next element, in a direction.
  step(direction) {
    const turn = this.state.turn;
    const ways = this.stops(this.state.mirror).map(({ degrees }) => {
      return modulo(direction * (degrees - turn), 360) || 360;
    });
    return direction * Math.min(...ways);
  }

  // --- moving by itself

  // Turns by so many degrees, or is there at once where the reader wants no motion.
  glide(by) {
    this.rest();
    const from = this.state.turn;
    if (calm()) return this.set({ turn: from + by });
    const length = 250 + 4 * Math.abs(by);
    const began = performance.now();
    const move = now => {
      const t = clamp((now - began) / length, 0, 1);
      const eased = t * t * (3 - 2 * t);
      this.set({ turn: t < 1 ? Math.round(from + by * eased) : from + by });
      this.moving = t < 1 ? requestAnimationFrame(move) : null;
    };
    this.goal = from + by;
    this.moving = requestAnimationFrame(move);
  }

  // Where a second press of a key begins, while the first is under way.
  hurry() {
    if (this.moving && this.goal !== undefined) this.set({ turn: this.goal });
    this.rest();
  }

  play() {
    this.playing = true;
    this.root.querySelector('.play').setAttribute('aria-pressed', true);
    this.root.querySelector('.play').textContent = '❚❚ Pause';
    let last = performance.now();
    let spare = 0; // what whole degrees leave over
    let until = 0; // when the pause on an element is over
    const move = now => {
      if (!this.playing) return;
      this.moving = requestAnimationFrame(move);
      const passed = Math.min(now - last, 100);
      last = now;
      if (now < until) return;
      const gap = this.step(1);
      spare += calm() ? gap : (passed * SPEED) / 1000;
      const arrives = spare >= gap;
      const by = arrives ? gap : Math.floor(spare);
      if (arrives) until = now + (calm() ? 2 : 1) * PAUSE;
      spare = arrives ? 0 : spare - by;
      if (by) this.set({ turn: this.state.turn + by });
    };
    this.moving = requestAnimationFrame(move);
  }

  rest() {
    this.playing = false;
    cancelAnimationFrame(this.moving);
    this.moving = null;
    this.goal = undefined;
    const button = this.root.querySelector('.play');
    button.setAttribute('aria-pressed', false);
    button.textContent = '▶ Play';
  }

  // --- controls

  controls() {
    this.root.querySelector('.tools').hidden = this.spec.output === 'arrows'; // two pictures in one
    this.slider.addEventListener('input', () => {
      this.rest();
      this.set({ turn: Number(this.slider.value) });
    });
    this.slider.addEventListener('keydown', event => {
      this.slider.classList.remove('by-hand');
      this.key(event);
    });
    this.root.querySelector('.play').addEventListener('click', () => {
      if (this.playing) this.rest();
      else this.play();
    });
    const mirror = this.root.querySelector('.mirror');
    mirror.hidden = !this.group.turns.some(t => t.mirror);
    mirror.querySelector('input').addEventListener('change', event => {
      this.set({ mirror: event.target.checked });
    });
    if (this.spec.face === 'maps') this.choices();
  }

  key(event) {
    const { key, shiftKey } = event;
    const small = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
    if (key === ' ') {
      if (this.playing) this.rest();
      else this.play();
    } else if (key === 'ArrowRight' || key === 'ArrowLeft') {
      const direction = key === 'ArrowRight' ? 1 : -1;
      this.hurry();
      this.glide(shiftKey ? direction : this.step(direction));
    } else if (Object.hasOwn(small, key)) {
      this.rest();
      this.set({ turn: this.state.turn + small[key] });
    } else if (key === 'Home') {
      this.rest();
      this.set({ turn: 0 });
    } else {
      return;
    }
    event.preventDefault();
  }

  listLayers() {
    if (this.spec.face !== 'maps') return;
    const layers = this.root.querySelector('select.layer');
    layers.replaceChildren(...this.eyes[0].maps.map(({ name, op }) => {
      const kind = op === 'reshape' ? '' : `: ${WORDS[op] ?? op}`; // its last step alone
      const words = name.replace('layers.', '') + kind;
      return make('option', { value: name, textContent: words });
    }));
  }

  choices() {
    this.listLayers();
    const layers = this.root.querySelector('select.layer');
    layers.addEventListener('change', () => this.set({ layer: layers.value, pixel: null }));
    this.channels = this.root.querySelector('select.channel');
    this.channels.addEventListener('change', () => {
      this.set({ channel: Number(this.channels.value) });
    });
    const shown = this.root.querySelector('.shown');
    shown.hidden = this.eyes.length === 1;
    this.eyes.forEach(({ label }, i) => {
      const box = make('input', { type: 'checkbox', checked: true, autocomplete: 'off' });
      box.addEventListener('change', () => this.toggle(i, box));
      shown.append(make('label', {}, box, label));
    });
  }

  // One network at least stays.
  toggle(i, box) {
    const others = this.state.shown.filter(each => each !== i);
    if (!box.checked && !others.length) box.checked = true;
    this.set({ shown: box.checked ? [...others, i].sort() : others });
  }

  // --- beside a kernel

  // A live page stands in an element with the name that its letters bear. A letter is what Python
  // wants to be seen from now on: JSON in an element that the notebook puts into the document.
  readLetters() {
    const name = this.root.closest('[data-mail]')?.dataset.mail;
    if (!name) return;
    const letters = document.getElementsByClassName('eqtutor-letter');
    const read = () => {
      const letter = [...letters].findLast(each => each.dataset.to === name);
      if (!letter || letter.textContent === this.letter) return;
      this.letter = letter.textContent;
      this.receive(JSON.parse(this.letter));
    };
    new MutationObserver(read).observe(document.body, { childList: true, subtree: true });
    read();
  }

  // Other weights or pictures; the turn, the layer and a drawing stay as they are.
  receive({ spec, tensors }) {
    this.spec = spec;
    this.eyes = spec.networks.map(each => new Eye(graphOf(each, spec.steps), this, tensors));
    this.gallery.fill(spec);
    this.listLayers();
    const { picture, layer } = this.state;
    const known = this.eyes[0].maps.some(({ name }) => name === layer);
    const there = this.gallery.own.has(picture) || Object.hasOwn(spec.pictures, picture);
    this.set({
      layer: known ? layer : this.eyes[0].layer(spec.layer).name,
      picture: there ? picture : '0', pixel: known ? this.state.pixel : null,
    });
  }

  // --- the address

  readAddress() {
    const [get, change] = this.address();
    this.touched ||= 'turn' in change;
    if (get('mirror') === '1') change.mirror = this.group.turns.some(t => t.mirror);
    if (this.eyes[0].maps.some(({ name }) => name === get('layer'))) change.layer = get('layer');
    const channel = Number.parseInt(get('channel'), 10);
    if (channel >= 0) change.channel = channel;
    const shown = (get('show') ?? '').split('.').filter(i => i && Number(i) in this.eyes);
    if (shown.length) change.shown = shown.map(Number);
    const pixel = this.readPixel(get('pixel'), change.layer ?? this.state.layer);
    if (pixel) change.pixel = pixel;
    const spot = /^(\d+)\.(\d+)$/.exec(get('spot') ?? '')?.slice(1).map(Number);
    this.dial.held = spot?.every(i => i < this.spec.shape[1]) ?? false;
    if (this.dial.held) change.spot = spot;
    this.become(change);
  }

  // 'network.panel.row.column', if there is such a pixel.
  readPixel(text, layer) {
    if (!/^\d+(\.\d+){3}$/.test(text ?? '')) return null;
    const [network, panel, y, x] = text.split('.').map(Number);
    const eye = this.eyes[network];
    if (!eye) return null;
    const { shape } = eye.layer(layer);
    const there = panel < eye.panelCount(shape) && y < shape.at(-2) && x < shape.at(-1);
    return there ? { network, panel, y, x } : null;
  }

  // When the hand has come to rest: the state goes into the address, and is said aloud.
  settle() {
    if (this.playing || this.moving) {
      this.settling = setTimeout(() => this.settle(), 350);
      return;
    }
    this.settling = null;
    const spoken = this.root.querySelector('.spoken');
    const followed = this.state.spot ? this.dial.words(this.state) : '';
    const stages = this.views.find(({ words }) => Array.isArray(words))?.words;
    const seen = this.root.querySelector('.verdict').checkVisibility(); // not behind a closed fold
    const judged = stages ?? (seen ? this.verdicts : []);
    spoken.textContent = [this.headline, ...judged, followed].join(' ');
    const { turn, mirror, layer, channel, shown, pixel, spot } = this.state;
    const place = pixel ? [pixel.network, pixel.panel, pixel.y, pixel.x].join('.') : '';
    this.writeAddress({
      turn, layer, channel, mirror: mirror ? 1 : '', show: shown.join('.'), pixel: place,
      spot: spot && this.dial.held ? spot.join('.') : '',
    });
  }

  // --- what is seen

  show() {
    const { state } = this;
    const picture = this.gallery.get(state.picture);
    const moved = move(picture, state);
    const sights = this.eyes.map((eye, i) => {
      return state.shown.includes(i) ? eye.see(state, picture, moved) : null;
    });
    const place = this.at(state);
    this.sights = sights;
    for (const sight of sights.filter(Boolean)) {
      sight.eye.errors.set(state.turn, sight.error);
      sight.loss = this.loss(picture, moved);
    }
    this.headline = this.sentence(sights.filter(Boolean), state, place);
    this.verdicts = sights.filter(Boolean).map(sight => {
      return `${sight.eye.label}: ${this.verdict(sight, state, place).words}`;
    });
    this.root.querySelector('.headline span').textContent = this.headline;
    this.root.querySelector('.headline').dataset.longest = this.longest(sights.filter(Boolean));
    this.showControls();
    for (const view of this.views) view.show({ state, sights, picture, moved, place });
  }

  showControls() {
    const { turn, mirror, layer, channel, shown } = this.state;
    const words = `${mirror ? 'mirror, ' : ''}${turn}°`;
    this.slider.value = turn;
    this.slider.setAttribute('aria-valuetext', words);
    this.root.querySelector('.angle').textContent = words;
    this.root.querySelector('.mirror input').checked = mirror;
    if (this.spec.face !== 'maps') return;
    this.root.querySelector('select.layer').value = layer;
    const n = this.eyes[0].layer(layer).shape[0];
    if (this.channels.length !== n) {
      const all = Array.from({ length: n }, (_, i) => make('option', { value: i, textContent: i }));
      this.channels.replaceChildren(...all);
    }
    this.state.channel = Math.min(channel, n - 1);
    this.channels.value = this.state.channel;
    [...this.root.querySelectorAll('.shown input')].forEach((box, i) => {
      box.checked = shown.includes(i);
    });
  }

  // By how much the picture itself changes when it is turned there and back.
  loss(picture, moved) {
    return errorOf(carryBack(moved, this.state, null), picture, true);
  }

  // --- in words

  // No verdict upright, where nothing was tested, nor before the reader has turned anything.
  verdict(sight, { turn, mirror }, place) {
    if ((turn === 0 && !mirror) || !this.touched) {
      return { words: 'Turn the picture to test it.', kind: '' };
    }
    if (this.spec.face === 'answers') return this.verdictOfScores(sight, place);
    if (!place.exact) {
      return { kind: '', words: `≈ Between the turns of ${this.group.name} nothing is exact: the `
        + `maps change by ${percent(sight.error)}, the picture by ${percent(sight.loss)}.` };
    }
    if (sight.error <= EXACT) {
      return { kind: 'good', words: '✓ Carried back, the maps are as they were '
        + `(equivariant). Error ${short(sight.error)}.` };
    }
    return { kind: 'bad', words: '✗ Carried back, the maps differ (not equivariant). '
      + `Error ${sight.error.toPrecision(2)}.` };
  }

  verdictOfScores({ error }, { exact }) {
    if (!exact) return { kind: '', words: `≈ Nothing is promised here.` };
    if (error <= EXACT) {
      return { kind: 'good', words: `✓ Scores as upright. Error ${short(error)}.` };
    }
    return { kind: 'bad', words: `✗ Other scores. Error ${error.toPrecision(2)}.` };
  }

  sentence(sights, { turn, mirror }, place) {
    const upright = turn === 0 && !mirror;
    if (this.spec.output) return this.sentenceOfOutcomes(sights, upright);
    const judges = sights.filter(sight => sight.scores);
    if (!judges.length) return this.sentenceOfMaps(sights, upright, place);
    const said = new Map(); // 'still says 7' -> who says it
    for (const { eye, scores, start } of judges) {
      const kept = scores.top === start.top ? 'still' : 'now';
      const answer = `${upright ? '' : kept}#${scores.names[scores.top]}`;
      said.set(answer, [...(said.get(answer) ?? []), eye.label]);
    }
    const words = [...said].map(([answer, labels]) => {
      const [when, name] = answer.split('#');
      const says = labels.length > 1 ? 'say' : 'says';
      return `${this.subject(labels, judges.length)} ${when} ${says} ${name}.`.replace('  ', ' ');
    });
    return words.join(' ') + (upright ? ' Now turn the picture.' : '');
  }

  // The longest of what `sentence` may say: all networks of different opinions, or of one.
  longest(sights) {
    const moved = { turn: 1, mirror: false };
    const opinions = kept => sights.map((sight, i) => {
      if (sight.outcome) return { ...sight, outcome: { same: kept || i ? 0 : 1 } };
      if (!sight.scores) return sight;
      const long = sight.scores.names.reduce((a, b) => (b.length > a.length ? b : a));
      const scores = { top: i, names: { [i]: long + '\u200b'.repeat(i) } };
      return { ...sight, error: 1, scores, start: kept ? scores : { top: -1 } };
    });
    const all = [true, false].flatMap(exact => [{ turn: 0 }, moved].flatMap(state => {
      return [this.sentence(opinions(true), state, { exact }),
        this.sentence(sights.map(each => ({ ...each, error: 0 })), state, { exact }),
        this.sentence(opinions(false), state, { exact })];
    }));
    return all.reduce((a, b) => (b.length > a.length ? b : a));
  }

  subject(labels, n) {
    if (n === 1) return 'The network';
    if (labels.length === n) return n === 2 ? 'Both networks' : `All ${n} networks`;
    return `The ${labels.join(' and the ')}`;
  }

  // Who turned along: at an element all of it, between them most.
  sentenceOfOutcomes(sights, upright) {
    const what = this.spec.output === 'labels' ? 'labels' : 'arrows';
    if (upright) return `Turn the picture: do the ${what} turn along?`;
    const said = [true, false].map(along => {
      const labels = sights.filter(({ outcome }) => (outcome.same > ALONG) === along)
        .map(({ eye }) => eye.label);
      if (!labels.length) return '';
      const all = labels.length === sights.length && labels.length > 1;
      if (all && !along) return `No network turned the ${what} along.`;
      return `${this.subject(labels, sights.length)} ${along ? 'turned' : 'did not turn'} the `
        + `${what} along.`;
    });
    return said.filter(Boolean).join(' ');
  }

  sentenceOfMaps(sights, upright, place) {
    if (upright) return 'Turn the picture, and watch where its maps go.';
    if (!place.exact) return 'Between the turns of the group nothing can be exact.';
    const broken = sights.filter(sight => sight.error > EXACT);
    if (!broken.length) return 'The maps turned and changed places: nothing else happened to them.';
    const names = broken.map(sight => sight.eye.label).join(' and ');
    const start = names[0].toUpperCase() + names.slice(1);
    return `${start}: the maps did more than turn and change places.`;
  }
}

export function start() {
  document.querySelectorAll('.eqtutor-turn').forEach((root, number) => {
    root.widget ??= new Turn(root, number);
  });
}
