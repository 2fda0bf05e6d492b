// Whom does a pixel listen to: the pixel under the pointer asks, and each layer shows where its
// attention lies, before and after the picture was moved.
import { rotate } from './engine.js';
import { clamp, decimal, Dial, draw, Gallery, graphOf, inkOf, inksOf, make, modulo, nameOf, near,
  nearestElement, networkOf, onTheme, packed, paint, Scene, turnOf } from './shared.js';

const SAME = 1e-6; // what is larger is no rounding
const NEAREST = 2.5; // degrees within which the ring falls onto a quarter turn
const SLICE = 8; // milliseconds at a time for all pixels, so that the pointer is never kept waiting
const TARDY = 100; // milliseconds: what takes longer is no motion
const LINES = 4; // to the strongest, where they hold at least half of what the strongest holds

const share = value => {
  if (value <= SAME) return '0 %';
  return value < .01 ? '< 1 %' : `${Math.round(100 * value)} %`;
};

// --- moving a picture: shifted round the frame, turned, its pixels shuffled

function shifted({ data, shape }, down, right) {
  const [rows, columns] = shape.slice(-2);
  const area = rows * columns;
  return {
    shape,
    data: data.map((_, i) => {
      const row = modulo(Math.floor((i % area) / columns) - down, rows);
      return data[i - (i % area) + row * columns + modulo((i % columns) - right, columns)];
    }),
  };
}

// The same order on every page: a linear congruential generator, Fisher–Yates.
function orderOf(n) {
  const order = Array.from({ length: n }, (_, i) => i);
  let seed = 1;
  for (let i = n - 1; i > 0; i--) {
    seed = (seed * 16807) % 2147483647;
    const j = seed % (i + 1);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

function shuffled({ data, shape }, order) {
  const area = order.length;
  return { shape, data: data.map((_, i) => data[i - (i % area) + order[i % area]]) };
}

class Move {
  constructor({ turn, down, right, shuffle }, size) {
    this.turn = turn;
    this.shift = [down, right];
    this.order = shuffle ? orderOf(size * size) : null;
    this.size = size;
    this.exact = turn % 90 === 0;
    this.isNone = !turn && !down && !right && !shuffle;
    if (!this.exact) return;
    const numbers = Float64Array.from({ length: size * size }, (_, i) => i);
    this.from = this.apply({ data: numbers, shape: [1, size, size] }).data;
    this.to = new Int32Array(size * size);
    this.from.forEach((old, i) => (this.to[old] = i));
  }

  apply(value) {
    if (this.isNone) return value;
    const turned = rotate(...Object.values(this.atShift(value)), this.turn);
    return this.order ? shuffled(turned, this.order) : turned;
  }

  atShift(value) {
    const { data, shape } = this.shift.some(Boolean) ? shifted(value, ...this.shift) : value;
    return { data, shape };
  }

  plane(data) {
    return this.apply({ data, shape: [1, this.size, this.size] }).data;
  }

  // Where a pixel has gone, [row, column]; the nearest one between the quarter turns.
  forth(place) {
    if (this.exact) return this.read(this.to, place);
    const turned = this.turned(this.wrapped(place, 1), 1);
    return this.order ? this.placeOf(this.order.indexOf(this.numberOf(turned))) : turned;
  }

  back(place) {
    if (this.exact) return this.read(this.from, place);
    const turned = this.order ? this.placeOf(this.order[this.numberOf(place)]) : place;
    return this.wrapped(this.turned(turned, -1), -1);
  }

  read(table, place) {
    return this.placeOf(table[this.numberOf(place)]);
  }

  numberOf([row, column]) {
    return row * this.size + column;
  }

  placeOf(number) {
    return [Math.floor(number / this.size), number % this.size];
  }

  wrapped([row, column], sign) {
    const [down, right] = this.shift;
    return [modulo(row + sign * down, this.size), modulo(column + sign * right, this.size)];
  }

  turned([row, column], sign) {
    const middle = (this.size - 1) / 2;
    const t = (sign * this.turn * Math.PI) / 180;
    const [x, y] = [column - middle, middle - row];
    const inside = value => clamp(Math.round(value), 0, this.size - 1);
    return [inside(middle - Math.sin(t) * x - Math.cos(t) * y),
      inside(middle + Math.cos(t) * x - Math.sin(t) * y)];
  }
}

// --- a layer, and what a pixel gets from it

// What a branch removes at each place and pose, mean over the channels: the product of two gates.
function gateOf(values, [channel, spatial]) {
  const [byChannel, byPlace] = [values.get(channel), values.get(spatial)];
  const [rows, columns] = byPlace.shape.slice(-2);
  const area = rows * columns;
  const poses = byPlace.data.length / area;
  const channels = byChannel.data.length / poses;
  const meanOf = pose => {
    let sum = 0;
    for (let c = 0; c < channels; c++) sum += byChannel.data[c * poses + pose];
    return sum / channels;
  };
  const at = (place, head, pose) => {
    return byPlace.data.slice(pose * area, (pose + 1) * area).map(v => v * meanOf(pose));
  };
  const parts = ([row, column], pose) => {
    return [meanOf(pose), byPlace.data[pose * area + row * columns + column]];
  };
  return { rows, columns, heads: 1, queries: 1, poses, signed: false, reach: [rows, columns],
    at, parts };
}

class Ear {
  constructor(graph, { kind, node, gates }, widget) {
    Object.assign(this, { kind, node, gates, widget, label: graph.name });
    this.network = networkOf(graph);
    // what the nodes do, as far as they are the same as the first layer's: those run once
    this.steps = graph.nodes.map(step => JSON.stringify(step));
    this.turns = graph.group.matrices.map(turnOf);
    this.mul = graph.group.mul;
  }

  // What the first layer has computed of a picture on the way that both take.
  known(first) {
    const { steps, network: { nodes } } = this;
    const [other] = this.widget.ears;
    const apart = steps.findIndex((step, i) => step !== other.steps[i]);
    const same = nodes.slice(0, apart < 0 ? steps.length : apart).map(({ name }) => name);
    return new Map(same.filter(name => first.has(name)).map(name => [name, first.get(name)]));
  }

  // What is heard of a picture, by the layer's own pixels; each picture is run once.
  hear(picture, first) {
    const { mean, std } = this.widget.spec;
    const area = picture.shape[1] * picture.shape[2];
    const values = this.network.run(picture.data.map((v, i) => {
      const channel = Math.floor(i / area) % mean.length;
      return (v - mean[channel]) / std[channel];
    }), this.kind === 'gate' ? undefined : this.node, first ? this.known(first.values) : undefined);
    const heard = this.gates
      ? gateOf(values, this.gates) : this.network.listen(values, this.node);
    return { ...heard, values, frame: (this.widget.size - heard.rows) / 2 };
  }

  // Of a pixel of the picture the map over the picture; the layer may see a frame less of it.
  map({ rows, frame, at }, [row, column], head, pose) {
    const place = [row, column].map(i => clamp(i - frame, 0, rows - 1));
    const inside = at(place, head, pose);
    if (!frame) return inside;
    const { size } = this.widget;
    const out = new Float64Array(size * size);
    for (let y = 0; y < rows; y++) {
      out.set(inside.subarray(y * rows, (y + 1) * rows), (y + frame) * size + frame);
    }
    return out;
  }

  // Where pose r is found after a turn: at the product with the nearest element.
  poseAfter(turn, pose) {
    if (this.mul.length < 2) return 0;
    return this.mul[nearestElement(this.turns, { turn, mirror: false }).element][pose];
  }

  // How far a map is from another: of weights, which sum to 1, the share that lies elsewhere;
  // of numbers the largest difference over the largest number.
  distance(a, b) {
    let [sum, largest, top] = [0, 0, 0];
    for (let i = 0; i < a.length; i++) {
      const difference = Math.abs(a[i] - b[i]);
      sum += difference;
      largest = Math.max(largest, difference);
      top = Math.max(top, Math.abs(b[i]));
    }
    return this.kind === 'attention' ? sum / 2 : largest / (top || 1);
  }
}

// --- colours: the page's own, so that a map is ink on its paper

const mixed = (a, b, t) => a.map((v, k) => v + (b[k] - v) * t);

class Inks {
  constructor(root) {
    const names = ['paper', 'ink', 'quiet', 'tint', 'against', 'for'];
    inkOf(root, names).forEach((ink, i) => (this[names[i]] = ink));
  }

  // The pixel i of a picture, pale: what is bright in it is tinted, what is dark is paper.
  pale({ data, shape }, i, inside, signed) {
    const area = shape[1] * shape[2];
    const own = shape[0] === 3 ? [0, 1, 2].map(k => data[k * area + i]) : [data[i]];
    const rgb = own.length === 3 ? own : [own[0], own[0], own[0]];
    const values = inside ? rgb.map(v => 1 - v) : rgb;
    const [top, low] = [Math.max(...values), Math.min(...values)];
    const colourful = top > 0 ? (top - low) / top : 0;
    const hue = rgb.map(v => (255 * v) / (Math.max(...rgb) || 1));
    const grey = signed || own.length > 1 ? this.quiet : this.tint;
    return mixed(this.paper, mixed(grey, hue, colourful), clamp(.5 * top, 0, 1));
  }

  over(base, value, top, signed) {
    const strength = clamp(Math.abs(value) / (top || 1), 0, 1);
    if (!signed) return mixed(base, this.ink, strength);
    return mixed(base, value < 0 ? this.against : this.for, strength);
  }
}

// Is a picture dark on light? Its rim says so.
function isLight({ data, shape }) {
  const [channels, rows, columns] = shape;
  const area = rows * columns;
  const corners = [0, columns - 1, area - columns, area - 1];
  let sum = 0;
  for (let c = 0; c < channels; c++) for (const i of corners) sum += data[c * area + i];
  return sum > 2 * channels;
}

// --- views

class Sheet extends Dial {
  show({ inks, moved, now, asks, source, state, widget, ear }) {
    const inside = isLight(moved);
    const size = widget.size;
    paint(this.canvas, [size, size], i => {
      return packed(inks.over(inks.pale(moved, i, inside, ear.signed), now[i],
        widget.topOf(now), ear.signed));
    });
    this.hand.setAttribute('transform', `rotate(${-state.turn})`);
    this.showLines(now, asks, source, widget);
  }

  showLines(now, [row, column], source, widget) {
    const { lines, size } = widget;
    lines.setAttribute('viewBox', `0 0 ${size} ${size}`);
    lines.replaceChildren();
    const kind = widget.ear().kind;
    const [x, y] = [column + .5, row + .5];
    if (kind === 'attention') {
      for (const { at, weight } of this.strongest(now, row * size + column)) {
        const [toX, toY] = [(at % size) + .5, Math.floor(at / size) + .5];
        lines.append(draw('line', { x1: x, y1: y, x2: toX, y2: toY,
          'stroke-width': (size / 60) * (.4 + weight / widget.topOf(now)) }));
      }
    }
    const box = { x: column - .1, y: row - .1, width: 1.2, height: 1.2 };
    lines.append(draw('rect', { class: 'halo', ...box }), draw('rect', box));
    const above = row > size / 5;
    const word = { attention: 'asks', kernel: 'writes', gate: 'here' }[kind];
    const middle = clamp(x, size / 8, size - size / 8);
    const place = { x: middle, y: above ? row - size / 22 : row + 1 + size / 9 };
    lines.append(draw('text', { ...place, 'font-size': size / 12 }, word));
    if (source) {
      lines.append(draw('circle', { class: 'halo', cx: source[1] + .5, cy: source[0] + .5, r: .9 }),
        draw('circle', { cx: source[1] + .5, cy: source[0] + .5, r: .9 }));
    }
  }

  strongest(map, own) {
    const order = [...map.keys()].sort((a, b) => map[b] - map[a]);
    return order.slice(0, LINES).filter(at => at !== own && map[at] > map[order[0]] / 2)
      .map(at => ({ at, weight: map[at] }));
  }
}

class View {
  constructor(widget, root, index) {
    Object.assign(this, { widget, root, index });
    this.button = root.querySelector('.name');
    this.button.addEventListener('click', () => widget.set({ panel: index }));
    this.verdict = root.querySelector('.verdict');
    this.boxes = ['before', 'after'].map(name => root.querySelector(`.${name}`));
  }

  show({ inks, picture, moved, sights, state, asks }) {
    const sight = sights[this.index];
    this.button.setAttribute('aria-pressed', state.panel === this.index);
    const side = this.widget.sideOf(sight);
    this.draw(this.boxes[0], inks, picture, sight.before, state.asks, side, sight);
    this.draw(this.boxes[1], inks, moved, sight.now, asks, side, sight);
    const several = sight.ear.mul.length > 1;
    const name = pose => nameOf(sight.ear.turns[pose]);
    this.root.querySelector('.where').textContent = several
      ? `now · pose ${name(sight.poseNow)}` : 'now';
    this.root.querySelector('small').textContent = several
      ? `was · pose ${name(sight.pose)}` : 'as it was';
    const { number, words, kind, all } = this.widget.judge(sight);
    this.verdict.className = `verdict ${kind}`;
    this.verdict.replaceChildren(make('b', { textContent: number }), words);
    this.verdict.append(make('br'), all ?? '');
  }

  // The map around the pixel that asks, or all of it.
  draw(box, inks, picture, map, [row, column], side, { ear, signed }) {
    const { size } = this.widget;
    const whole = side >= size;
    const [top, left] = whole ? [0, 0] : [row, column].map(i => i - (side - 1) / 2);
    const inside = isLight(picture);
    const largest = this.widget.topOf(map);
    const canvas = box.querySelector('canvas');
    paint(canvas, [side, side], k => {
      const [y, x] = [Math.floor(k / side) + top, (k % side) + left];
      if (y < 0 || x < 0 || y >= size || x >= size) return packed(inks.paper);
      const i = y * size + x;
      return packed(inks.over(inks.pale(picture, i, inside, signed), map[i], largest, signed));
    });
    const what = { attention: 'the attention', kernel: 'the kernel', gate: 'what is removed' };
    canvas.setAttribute('aria-label',
      `${what[ear.kind]}, pixel in row ${row}, column ${column}`);
    const { style } = box.querySelector('.mark');
    style.top = `${(100 * (row - top)) / side}%`;
    style.left = `${(100 * (column - left)) / side}%`;
    style.width = style.height = `${100 / side}%`;
  }
}

// --- the sum of one pair, number by number

const vectorOf = values => `(${Array.from(values, decimal).join(', ')})`;
const line = (...parts) => make('p', {}, ...parts);
const plain = value => (value < 1e5 && value >= .1 ? value.toFixed(1) : value.toExponential(1));
const bold = text => make('b', { textContent: text });

class Arithmetic {
  constructor(widget) {
    this.widget = widget;
    this.box = widget.root.querySelector('.sum');
  }

  show({ sights, state, asks, source }) {
    const sight = sights[state.panel];
    const lines = this[sight.ear.kind](sight, asks, source, state);
    this.box.replaceChildren(...lines);
  }

  attention({ after, poseNow, ear }, asks, source, { head }) {
    const pair = source && after.pair(...[asks, source], head, poseNow);
    if (!pair) return [line('Out of reach: from there this pixel hears nothing.')];
    const { query, key, encoding, factor, score, weight } = pair;
    const place = ([row, column]) => `row ${row}, column ${column}`;
    const power = Math.exp(score);
    const label = this.widget.ears.length > 1 ? `${ear.label}: ` : '';
    const poses = after.poses > 1 && after.queries > 1
      ? `; of ${after.queries ** 2} pairs of poses the strongest: `
        + `${nameOf(ear.turns[pair.queryPose])} asks ${nameOf(ear.turns[pair.source])}` : '';
    return [
      line(`${label}${place(asks)} asks ${place(source)}${poses}`),
      line('query ', vectorOf(query), ' · ( key ', vectorOf(key), ' + encoding ',
        vectorOf(encoding), ` ) · ${decimal(factor)} = score `, bold(decimal(score))),
      line(`softmax: e^${decimal(score)} / sum over all it hears = ${plain(power)} / `
        + `${plain(power / weight)} = weight `, bold(`${(100 * weight).toFixed(2)} %`)),
    ];
  }

  kernel({ after, poseNow, ear }, asks, source, { head }) {
    const [channel, pose] = [head * this.widget.perKernel(ear, after), poseNow];
    const sum = ear.network.explain(after.values, ear.node, [channel, pose, ...asks]);
    const { filter, patch, size: [side] } = sum.terms[0];
    const products = [...filter].map((w, v) => {
      return `${decimal(w)}·${decimal(patch[v])}`;
    });
    const rows = Array.from({ length: side }, (_, r) => {
      return line(products.slice(r * side, (r + 1) * side).join(' + '));
    });
    return [line('kernel · values of the window, channel ', String(channel), ' = ',
      bold(decimal(sum.value))), ...rows];
  }

  gate({ after, poseNow, ear }, asks) {
    const place = asks.map(i => clamp(i - after.frame, 0, after.rows - 1));
    const [channel, spatial] = after.parts(place, poseNow);
    return [
      line(`row ${asks[0]}, column ${asks[1]}, pose ${nameOf(ear.turns[poseNow] ?? ear.turns[0])}`),
      line(`α of channels (mean) ${decimal(channel)} · α of places ${decimal(spatial)} = `,
        'removed ', bold(share(channel * spatial))),
      line(`what goes on to the convolution: f − ${decimal(channel * spatial)} · f`),
    ];
  }
}

// --- the widget

const ASK = {
  attention: 'Attention: this pixel asks. The darker a place, the more it listens there.',
  kernel: 'This pixel writes its own kernel. Purple counts for, orange against.',
  gate: 'The more ink, the more is removed there before the convolution.',
};

class Listening extends Scene {
  constructor(root, number) {
    super(root, `ask${number ? number + 1 : ''}.`);
    this.size = this.spec.shape[1];
    this.moving = null;
    this.ears = this.spec.networks.map((network, i) => {
      return new Ear(graphOf(network, this.spec.steps), this.spec.listens[i], this);
    });
    const { asks, turn, head, pose } = this.spec;
    this.state = { turn, down: 0, right: 0, shuffle: false, picture: '0', asks, source: null,
      held: false, panel: this.spec.panel, head, pose };
    this.group = this.ears.reduce((a, b) => (b.mul.length > a.mul.length ? b : a));
    this.lines = root.querySelector('.lines');
    this.slider = root.querySelector('.turning input');
    this.dial = new Sheet(this);
    this.inks = inksOf(root);
    this.gallery = new Gallery(this);
    const views = [...root.querySelectorAll('.view')].map((view, i) => new View(this, view, i));
    this.views = [this.gallery, ...views, new Arithmetic(this)];
    if (root.querySelector('.tour')) this.views.push(eqtutorTour.guide(this, 'attention'));
    this.heard = new Map();
    this.controls();
    onTheme(() => this.takeInks());
    this.begin();
  }

  // The panels: a layer each, or of one layer a pose each.
  panels() {
    const { pose } = this.state;
    if (this.ears.length > 1) {
      return this.ears.map(ear => ({ ear, pose: clamp(pose, 0, ear.mul.length - 1) }));
    }
    return Array.from({ length: this.spec.panels }, (_, i) => ({ ear: this.ears[0], pose: i }));
  }

  ear() {
    return this.panels()[this.state.panel].ear;
  }

  // --- state

  become(change) {
    const { mirror, ...rest } = change; // the gallery asks for the picture as it was: to draw on it
    if (mirror === false) Object.assign(rest, { down: 0, right: 0, shuffle: false });
    Object.assign(this.state, rest);
    this.state.turn = modulo(Math.round(this.state.turn * 100) / 100, 360);
    for (const key of ['down', 'right']) this.state[key] = modulo(this.state[key], this.size);
    this.request();
  }

  // The dial and the gallery ask for these.
  stops() {
    const quarters = [0, 90, 180, 270].map(degrees => ({ degrees }));
    return this.group ? quarters : [];
  }

  snap(turn) {
    const loose = modulo(Math.round(turn), 360);
    return this.stops().find(t => near(t.degrees, loose) <= NEAREST)?.degrees ?? loose;
  }

  rest() {}

  // --- controls

  controls() {
    const find = name => this.root.querySelector(name);
    const click = (name, change) => find(name).addEventListener('click', () => this.set(change()));
    this.slider.addEventListener('input', () => this.set({ turn: Number(this.slider.value) }));
    const { state } = this;
    click('.quarter', () => ({ turn: this.nextQuarter() }));
    click('.left', () => ({ right: state.right - 1 }));
    click('.right', () => ({ right: state.right + 1 }));
    click('.up', () => ({ down: state.down - 1 }));
    click('.down', () => ({ down: state.down + 1 }));
    click('.shuffle', () => ({ shuffle: !state.shuffle }));
    click('.undo', () => ({ turn: 0, down: 0, right: 0, shuffle: false }));
    click('.hold', () => ({ held: !state.held, source: null }));
    this.hold = find('.hold');
    this.pose = find('.poses select');
    this.head = find('.heads select');
    const poses = this.group.turns.map((turn, i) => {
      return make('option', { value: i, textContent: nameOf(turn) });
    });
    this.pose.replaceChildren(...poses);
    find('.poses').hidden = this.ears.length === 1 || poses.length === 1;
    this.pose.addEventListener('change', () => this.set({ pose: Number(this.pose.value) }));
    const heads = Array.from({ length: this.spec.heads }, (_, i) => {
      return make('option', { value: i, textContent: i + 1 });
    });
    this.head.replaceChildren(...heads);
    find('.heads').hidden = heads.length === 1;
    if (this.ears[0].kind === 'kernel') find('.heads').firstChild.textContent = 'kernel ';
    this.hold.hidden = this.ears[0].kind !== 'attention';
    this.head.addEventListener('change', () => this.set({ head: Number(this.head.value) }));
    this.pointing(find('.asks'));
  }

  nextQuarter() {
    return 90 * (Math.floor(this.state.turn / 90) + 1);
  }

  pointing(sheet) {
    const place = event => {
      const box = sheet.getBoundingClientRect();
      const at = (value, length) => {
        return clamp(Math.floor((value / length) * this.size), 0, this.size - 1);
      };
      return this.move.back([at(event.clientY - box.top, box.height),
        at(event.clientX - box.left, box.width)]);
    };
    const point = event => {
      if (this.drawing) return;
      this.set(this.state.held ? { source: place(event) } : { asks: place(event), source: null });
    };
    sheet.addEventListener('pointermove', point);
    sheet.addEventListener('pointerdown', event => {
      if (this.drawing || event.button) return;
      event.stopPropagation(); // the ring around it turns, the picture itself asks
      sheet.setPointerCapture(event.pointerId);
      if (event.pointerType === 'mouse' && this.ear().kind === 'attention') {
        this.set({ held: !this.state.held, source: null });
      } else point(event);
    });
    sheet.addEventListener('keydown', event => {
      if (!this.drawing) this.key(event);
    });
  }

  key(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const { held, source, asks } = this.state;
    if (event.key === 'Enter') this.set({ held: !held, source: null });
    else if (Object.hasOwn(step, event.key)) {
      const now = this.move.forth(held && source ? source : asks);
      const next = now.map((i, k) => clamp(i + step[event.key][k], 0, this.size - 1));
      const old = this.move.back(next);
      this.set(held ? { source: old } : { asks: old, source: null });
    } else return;
    event.preventDefault();
  }

  // --- the address

  readAddress() {
    const [get, change] = this.address();
    const whole = (key, below) => {
      const value = Number.parseInt(get(key), 10);
      if (value >= 0 && value < below) change[key] = value;
    };
    whole('down', this.size);
    whole('right', this.size);
    whole('panel', this.panels().length);
    whole('head', this.spec.heads);
    whole('pose', this.group.mul.length);
    if (get('shuffle') === '1') change.shuffle = true;
    const asks = /^(\d+)\.(\d+)$/.exec(get('pixel') ?? '');
    if (asks && asks.slice(1).every(i => i < this.size)) change.asks = asks.slice(1).map(Number);
    this.become(change);
  }

  // When the hand has come to rest: the state goes into the address, is said, and all pixels ask.
  settle() {
    this.settling = null;
    const said = this.sights.map(sight => `${sight.label}: ${this.judge(sight).said}`);
    this.root.querySelector('.spoken').textContent = [this.headline, ...said].join(' ');
    this.askAll();
    const { turn, down, right, shuffle, asks, panel, head, pose } = this.state;
    const all = { turn, down, right, panel, head, pose, pixel: asks.join('.') };
    this.writeAddress({ ...all, shuffle: shuffle ? 1 : '' });
  }

  // --- what is seen

  // What a layer hears of a picture, kept until another is asked for.
  hearing(ear, when, picture) {
    const key = `${this.ears.indexOf(ear)}.${when}`;
    const kept = this.heard.get(key);
    if (kept?.picture === picture) return kept.heard;
    const first = ear === this.ears[0] ? null : this.hearing(this.ears[0], when, picture);
    const heard = ear.hear(picture, first);
    this.heard.set(key, { picture, heard });
    return heard;
  }

  // The picture moved, the same object as long as nothing has changed.
  afterMove(picture) {
    const { turn, down, right, shuffle } = this.state;
    const key = [turn, down, right, shuffle].join();
    if (this.movedKey !== key || this.movedFrom !== picture) {
      Object.assign(this, { movedKey: key, movedFrom: picture });
      this.move = new Move(this.state, this.size);
      this.movedPicture = this.move.apply(picture);
    }
    return this.movedPicture;
  }

  show() {
    const { state } = this;
    const picture = this.gallery.get(state.picture);
    const moved = this.afterMove(picture);
    const asks = this.move.forth(state.asks);
    if (this.slow && this.sights && !this.move.exact) return this.showTurning(moved);
    const began = performance.now();
    this.sights = this.panels().map(panel => this.sight(panel, picture, moved, asks));
    const sight = this.sights[state.panel];
    const source = this.sourceOf(sight, asks);
    const scene = { state, picture, moved, asks, source, now: sight.now, sights: this.sights,
      inks: new Inks(this.root), widget: this, ear: sight };
    this.headline = this.sentence();
    this.root.querySelector('.headline').textContent = this.headline;
    this.showControls();
    this.dial.show(scene);
    for (const view of this.views) view.show(scene);
    if (!this.move.exact) this.slow = performance.now() - began > TARDY;
  }

  // On a slow machine the picture alone turns with the hand; the maps follow at the quarter turns.
  showTurning(moved) {
    const { size, sights, state } = this;
    const blank = new Float64Array(size * size);
    this.headline = 'Maps follow at the quarter turns: this machine is slow.';
    this.root.querySelector('.headline').textContent = this.headline;
    this.showControls();
    this.dial.show({ inks: new Inks(this.root), moved, now: blank, state, widget: this,
      asks: this.move.forth(state.asks), source: null, ear: sights[state.panel] });
  }

  sight({ ear, pose }, picture, moved, asks) {
    const [first, after] = [this.hearing(ear, 'before', picture), this.hearing(ear, 'now', moved)];
    const head = clamp(this.state.head, 0, first.heads - 1);
    const poseNow = ear.poseAfter(this.state.turn, pose);
    const before = ear.map(first, this.state.asks, head, pose);
    const now = ear.map(after, asks, head, poseNow);
    const error = ear.distance(now, this.move.plane(before));
    const label = this.ears.length > 1 ? ear.label : nameOf(ear.turns[pose]);
    return { ear, label, pose, poseNow, head, first, after, before, now, error,
      signed: after.signed };
  }

  // Whose sum is shown: the one that was chosen, else the strongest but itself.
  sourceOf({ ear, now }, asks) {
    if (ear.kind !== 'attention') return null;
    if (this.state.source) return this.move.forth(this.state.source);
    const own = asks[0] * this.size + asks[1];
    let best = own ? 0 : 1;
    now.forEach((value, i) => {
      if (i !== own && value > now[best]) best = i;
    });
    return [Math.floor(best / this.size), best % this.size];
  }

  showControls() {
    const { turn, shuffle, held, head, pose } = this.state;
    this.slider.value = turn;
    this.slider.setAttribute('aria-valuetext', `${turn}°`);
    this.root.querySelector('.angle').textContent = `${turn}°`;
    this.root.querySelector('.shuffle').setAttribute('aria-pressed', shuffle);
    this.hold.setAttribute('aria-pressed', held);
    this.hold.textContent = held ? 'held: point at a source' : 'hold this pixel';
    this.head.value = head;
    this.pose.value = pose;
  }

  // The side of the views: all of the picture, or the window and a rim.
  sideOf({ after, ear }) {
    const side = 2 * Math.max(...after.reach) + 5;
    return ear.kind === 'gate' || side >= this.size ? this.size : side;
  }

  // What is drawn in full ink: the largest of a map, all of it where a branch removes.
  topOf(map) {
    if (this.ears[0].kind === 'gate') return 1;
    let top = 0;
    for (const value of map) top = Math.max(top, Math.abs(value));
    return top;
  }

  perKernel(ear, { heads, values }) {
    const node = ear.network.nodes.find(({ name }) => name === ear.node);
    return node.shape[0] / heads;
  }

  // --- every pixel asks: in slices of time, so that nothing waits

  askAll() {
    const ticket = (this.ticket = {});
    if (this.move.isNone || !this.move.exact) return;
    const jobs = this.sights.map(sight => ({ sight, next: 0, worst: 0 }));
    const { state, size, move } = this;
    const key = JSON.stringify([state.turn, state.down, state.right, state.shuffle, state.head,
      state.pose, state.picture]);
    const known = this.askedKey === key && this.askedOf === this.movedPicture;
    if (known && this.everywhere?.done) return;
    Object.assign(this, { askedKey: key, askedOf: this.movedPicture, everywhere: { done: false } });
    const total = size * size;
    const work = () => {
      if (this.ticket !== ticket) return;
      const until = performance.now() + SLICE;
      for (const job of jobs) {
        const { ear, first, after, pose, poseNow, head } = job.sight;
        const end = ear.kind === 'gate' ? 1 : total;
        while (job.next < end && performance.now() < until) {
          const place = [Math.floor(job.next / size), job.next % size];
          const before = move.plane(ear.map(first, place, head, pose));
          const now = ear.map(after, move.forth(place), head, poseNow);
          job.worst = Math.max(job.worst, ear.distance(now, before));
          job.next++;
        }
        if (job.next < end) return void setTimeout(work);
      }
      this.everywhere = { done: true, worst: jobs.map(job => job.worst) };
      this.request();
    };
    setTimeout(work);
  }

  // --- in words

  // No verdict before the reader has moved the picture: nothing was tested.
  judge(sight) {
    const what = sight.ear.kind === 'attention'
      ? 'of its attention went elsewhere' : 'is how far it differs';
    if (this.move.isNone) {
      return { number: '', words: '', kind: '', said: 'move the picture to test it' };
    }
    const number = share(sight.error);
    if (!this.move.exact) {
      const words = `≈ ${what}; between the quarter turns pixels do not meet pixels`;
      return { number, words, kind: '', said: `${number} ${words}` };
    }
    const follows = sight.error <= SAME;
    const words = `${follows ? '✓ follows:' : '✗ does not:'} ${number} ${what}`;
    const worst = this.everywhere?.done && this.everywhere.worst[this.sights.indexOf(sight)];
    const all = typeof worst === 'number' && this.askedOf === this.movedPicture
      ? `of any pixel: at most ${share(worst)}` : '';
    return { number: `${follows ? '✓' : '✗'} ${number}`, kind: follows ? 'good' : 'bad', all,
      words: what, said: words };
  }

  sentence() {
    const { kind } = this.ear();
    if (this.move.isNone) return `${ASK[kind]} Now move the picture.`;
    if (!this.move.exact) return 'Between the quarter turns: turn on to one of them.';
    const [right, wrong] = [true, false].map(fine => {
      return this.sights.filter(({ error }) => (error <= SAME) === fine).map(({ label }) => label);
    });
    const list = names => names.join(', ').replace(/, ([^,]*)$/, ' and $1');
    if (!wrong.length && this.ears.length === 1) {
      const [{ pose, poseNow }] = this.sights;
      const where = pose === poseNow ? '' : ', to another pose';
      return `Every map has gone along with the picture${where}.`;
    }
    if (!wrong.length) return `All have gone along with the picture: ${list(right)}.`;
    if (!right.length) return `Nothing has gone along with the picture: ${list(wrong)}.`;
    return `Gone along with the picture: ${list(right)}. Not: ${list(wrong)}.`;
  }
}

export function start() {
  document.querySelectorAll('.eqtutor-attention').forEach((root, number) => {
    root.widget ??= new Listening(root, number);
  });
}
