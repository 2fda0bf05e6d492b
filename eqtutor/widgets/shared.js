// What the widgets are made of: small tools, the group, pictures on canvases, the dial under the
// hand, the row of pictures with a drawing and a file, the state in the address.
import { flipColumns, readNetwork, rotate } from './engine.js';

const LEVELS = 15; // grey levels of a drawing, so that it fits into an address
const SHADOW = .35; // of the ink of a picture that was before another
const STILL = 4; // pixels that a hand may move and still click
const SVG = 'http://www.w3.org/2000/svg';

// --- small tools

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, text = '') {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

const modulo = (a, n) => ((a % n) + n) % n;
const near = (a, b) => Math.abs(modulo(a - b + 180, 360) - 180);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const short = value => (value === 0 ? '0' : value.toExponential(0));
const percent = share => `${Math.round(100 * share)} %`;
const decimal = value => value.toFixed(2).replace('-', '−');
const signed = value => ` ${value < 0 ? '−' : '+'} ${decimal(Math.abs(value))}`;
const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

function bytesOf(text) {
  return Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}

// --- the group, and carrying maps back

// [mirrors the columns first?, degrees counter-clockwise], as Group.describe says it
function turnOf([[a, c], [b, d]]) {
  const mirror = a * d - c * b < 0;
  const angle = mirror ? Math.atan2(-b, -a) : Math.atan2(b, a);
  return { mirror, degrees: modulo(Math.round((angle * 18000) / Math.PI) / 100, 360) };
}

function nameOf({ mirror, degrees }) {
  return `${mirror ? 'mirror, ' : ''}${degrees}°`;
}

// The element nearest to a turn; null where the group has none that mirrors alike.
function nearestElement(turns, { turn, mirror }) {
  const alike = turns.map((t, element) => ({ ...t, element })).filter(t => t.mirror === mirror);
  alike.sort((a, b) => near(a.degrees, turn) - near(b.degrees, turn));
  return alike.length ? { ...alike[0], exact: near(alike[0].degrees, turn) === 0 } : null;
}

// Mirrored or not, then turned.
function move(value, { turn, mirror }) {
  const { data, shape } = mirror ? flipColumns(value) : value;
  return rotate(data, shape, turn);
}

// Where a place [row, column] of a square of so many pixels goes; `sign` −1 leads back.
function movePlace([row, column], size, { turn, mirror }, sign = 1) {
  const middle = (size - 1) / 2;
  const t = (sign * turn * Math.PI) / 180;
  const flip = x => (mirror ? -x : x);
  const [x, y] = [sign > 0 ? flip(column - middle) : column - middle, middle - row];
  const [right, up] = [Math.cos(t) * x - Math.sin(t) * y, Math.sin(t) * x + Math.cos(t) * y];
  return [middle - up, middle + (sign > 0 ? right : flip(right))];
}

// A ring on a place of a square, before or after it is moved.
function placeMark(style, place, size, state) {
  const [row, column] = state ? movePlace(place, size, state) : place;
  style.setProperty('--y', `${(100 * (row + .5)) / size}%`);
  style.setProperty('--x', `${(100 * (column + .5)) / size}%`);
}

// --- pictures on canvases

// A colour as one number, as canvases hold it: opaque, then blue, green and red from 0 to 255.
function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function palette(stops) {
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1);
    const left = Math.min(Math.floor(at), stops.length - 2);
    const mix = (a, k) => Math.round(a + (stops[left + 1][k] - a) * (at - left));
    return packed(stops[left].map(mix));
  });
}

function paint(canvas, [height, width], colourAt) {
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = colourAt(i);
  canvas.getContext('2d').putImageData(image, 0, 0);
}

function paintMap(canvas, values, size, low, high, colours) {
  const scale = 255 / (high - low || 1);
  paint(canvas, size, i => colours[clamp(Math.round((values[i] - low) * scale), 0, 255)]);
}

// Ink on paper, whatever the page's paper is; values of both signs in two colours, 0 is paper.
function paintInk(canvas, values, size, low, high, inks) {
  if (low >= 0) return paintMap(canvas, values, size, low, high, inks.ink);
  const most = Math.max(-low, high);
  paintMap(canvas, values, size, -most, most, inks.signed);
}

// A picture in grey is ink, where inks are given; of two, the one before is a shadow of the other.
function paintPicture(canvas, { data, shape }, inks) {
  const [channels, height, width] = shape;
  const grey = channels !== 3;
  const level = at => Math.round(255 * clamp(data[at], 0, 1));
  const area = height * width;
  if (inks && grey) {
    const now = channels === 2 ? i => Math.max(SHADOW * level(i), level(area + i)) : level;
    return paint(canvas, [height, width], i => inks.ink[Math.round(now(i))]);
  }
  paint(canvas, [height, width], i => {
    return packed(grey ? [level(i), level(i), level(i)] : [0, 1, 2].map(k => level(k * area + i)));
  });
}

// --- arrows from the panels of a row to those of the next

function drawArrows(svg, targets) {
  svg.setAttribute('viewBox', `0 0 ${100 * targets.length} 30`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.replaceChildren(...targets.map((to, from) => {
    const [a, b] = [100 * from + 50, 100 * to + 50];
    const way = { d: `M${a} 1C${a} 14 ${b} 8 ${b} 24`, 'vector-effect': 'non-scaling-stroke' };
    const arrow = draw('g');
    const tip = { class: 'tip', d: `M${b - 5} 21L${b} 30L${b + 5} 21Z` };
    arrow.append(draw('path', way), draw('path', tip));
    return arrow;
  }));
}

// --- the page's own colours

// Colours by the names of the style sheet, each as three numbers.
function inkOf(root, names) {
  const probe = make('span', { hidden: true });
  root.append(probe);
  const inks = names.map(name => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  });
  probe.remove();
  return inks;
}

// Colours of all values from 0 to 255: ink on paper, and of numbers of both signs.
function inksOf(root) {
  const all = inkOf(root, ['paper', 'ink', 'against', 'for', 'accent', 'wrong']);
  const [paper, ink, against, plus, ...lines] = all;
  const [arrow, was] = lines.map(colour => `rgb(${colour})`);
  return {
    key: all.join(), ink: palette([paper, ink]), signed: palette([against, paper, plus]),
    arrow, was,
  };
}

// Calls when the page has turned dark or light.
function onTheme(again) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  new MutationObserver(again).observe(document.body, { attributes: true });
}

// --- views: the picture under the hand

class Dial {
  constructor(widget) {
    this.widget = widget;
    this.box = widget.root.querySelector('.dial');
    this.canvas = this.box.querySelector('canvas');
    this.nib = this.box.querySelector('.nib');
    this.ring = this.box.querySelector('svg');
    this.ring.append(draw('circle', { r: 92 }));
    for (const { degrees } of widget.stops(false)) {
      this.ring.append(draw('path', {
        class: 'element', d: 'M0 -88V-97', transform: `rotate(${-degrees})`,
      }));
    }
    this.hand = draw('g');
    this.hand.append(draw('path', { class: 'frame', d: 'M-66 -66H66V66H-66Z' }));
    this.hand.append(draw('circle', { class: 'knob', r: 6, cy: -92 }));
    this.ring.append(this.hand);
    this.listen();
  }

  listen() {
    let last = null;
    let loose = 0; // where the hand is, before it falls onto an element
    let began = null; // where it was pressed, until it moves
    const angle = event => {
      const box = this.box.getBoundingClientRect();
      const x = event.clientX - box.left - box.width / 2;
      const y = box.top + box.height / 2 - event.clientY;
      return (Math.atan2(y, x) * 180) / Math.PI;
    };
    this.box.addEventListener('pointerdown', event => {
      if (this.widget.drawing || event.button) return;
      event.preventDefault();
      this.box.setPointerCapture(event.pointerId);
      this.widget.takeHold();
      last = angle(event);
      loose = this.widget.state.turn;
      began = [event.clientX, event.clientY];
    });
    this.box.addEventListener('pointermove', event => {
      if (last === null) return this.widget.drawing || this.point(event, false);
      if (began && Math.hypot(event.clientX - began[0], event.clientY - began[1]) < STILL) return;
      began = null;
      const now = angle(event);
      loose += modulo(now - last + 180, 360) - 180;
      last = now;
      this.widget.set({ turn: this.widget.snap(loose) });
    });
    this.box.addEventListener('pointerup', event => {
      if (began) this.point(event, true);
      last = began = null;
    });
    this.box.addEventListener('pointercancel', () => (last = began = null));
  }

  // A place of the picture under the pointer, or clicked: nothing, unless a widget follows it.
  point() {}

  show({ state, moved }) {
    paintPicture(this.canvas, moved, this.widget.inks);
    this.canvas.setAttribute('aria-label', `the picture, turned by ${state.turn}°`);
    this.hand.setAttribute('transform', `rotate(${-state.turn})`);
  }
}

// --- which picture: prepared ones, a drawing, a file

// what the picture is while it is drawn on
const PAPER = { tabindex: 0, role: 'application', 'aria-label': 'paper: arrow keys move the pen' };

class Gallery {
  constructor(widget) {
    this.widget = widget;
    const { root, spec } = widget;
    this.box = root.querySelector('.pictures');
    this.said = root.querySelector('.said');
    this.pen = root.querySelector('.draw');
    this.own = new Map(); // 'drawn' and 'loaded'
    this.fill(spec);
    this.pen.addEventListener('click', () => this.toggle());
    root.querySelector('.load input').addEventListener('change', event => this.load(event.target));
    this.listen();
  }

  // The prepared pictures in front of the reader's own.
  fill({ pictures, shape }) {
    this.pictures = pictures.map(({ data }) => {
      return { data: Float64Array.from(bytesOf(data), byte => byte / 255), shape };
    });
    const others = [...this.box.children].filter(button => this.own.has(button.dataset.key));
    this.box.replaceChildren();
    pictures.forEach(({ name }, i) => this.add(this.pictures[i], name, String(i)));
    this.box.append(...others);
  }

  add(picture, name, key) {
    const canvas = make('canvas');
    paintPicture(canvas, picture, this.widget.inks);
    const button = make('button', { type: 'button' }, canvas);
    button.setAttribute('aria-label', `picture: ${name}`);
    button.dataset.key = key;
    button.addEventListener('click', () => {
      this.stop();
      this.widget.set({ picture: key });
    });
    this.box.append(button);
  }

  get(key) {
    return this.own.get(key) ?? this.pictures[key] ?? this.pictures[0];
  }

  // In other colours.
  repaint() {
    for (const button of this.box.children) {
      const picture = this.get(button.dataset.key);
      paintPicture(button.querySelector('canvas'), picture, this.widget.inks);
    }
  }

  // A picture of the reader's own is one more in the row.
  keep(key, picture, name) {
    this.own.set(key, picture);
    this.box.querySelector(`[data-key="${key}"]`)?.remove();
    this.add(picture, name, key);
  }

  say(words) {
    this.said.hidden = !words;
    this.said.textContent = words;
  }

  show({ state }) {
    for (const button of this.box.children) {
      button.setAttribute('aria-pressed', button.dataset.key === state.picture);
    }
  }

  // --- drawing

  toggle() {
    if (this.widget.drawing) return this.stop();
    this.widget.rest();
    this.widget.drawing = true;
    this.widget.dial.box.classList.add('drawing');
    this.pen.setAttribute('aria-pressed', true);
    this.pen.textContent = '✓ Turn it';
    this.say('Draw a digit with mouse, finger or pen, then press “Turn it”. With keys: the arrows '
      + 'move the pen on the picture, Space puts it down and lifts it, Enter turns.');
    this.widget.set({ turn: 0, mirror: false });
    const { shape } = this.widget.spec;
    const area = shape[0] * shape[1] * shape[2];
    this.ink({ data: new Float64Array(area), shape });
    this.nib = { x: (shape[2] - 1) / 2, y: (shape[1] - 1) / 2, down: false };
    const { box } = this.widget.dial;
    for (const [name, value] of Object.entries(PAPER)) box.setAttribute(name, value);
    box.focus({ preventScroll: true });
    box.scrollIntoView({ block: 'nearest' });
    this.showNib();
  }

  // Where the keyboard's pen is, and whether it writes.
  showNib() {
    const { x, y, down } = this.nib;
    const [, height, width] = this.widget.spec.shape;
    const { style, classList } = this.widget.dial.nib;
    style.left = `${(100 * (x + .5)) / width}%`;
    style.top = `${(100 * (y + .5)) / height}%`;
    classList.toggle('down', down);
  }

  // The keys of the pen: a pixel a step, and a stroke where it is down.
  write(event) {
    const step = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    const { nib } = this;
    const [, height, width] = this.widget.spec.shape;
    const from = [nib.x, nib.y];
    if (event.key === ' ') nib.down = !nib.down;
    else if (event.key === 'Enter' || event.key === 'Escape') this.stop(true);
    else if (Object.hasOwn(step, event.key)) {
      nib.x = clamp(nib.x + step[event.key][0], 0, width - 1);
      nib.y = clamp(nib.y + step[event.key][1], 0, height - 1);
    } else return;
    event.preventDefault();
    if (nib.down && this.widget.drawing) this.stroke(from, [nib.x, nib.y]);
    this.showNib();
  }

  stroke(from, to) {
    const old = this.get('drawn');
    this.ink({ data: inked(old, from, to), shape: old.shape });
  }

  ink(picture) {
    this.keep('drawn', picture, 'your drawing');
    this.widget.set({ picture: 'drawn' });
  }

  stop(goes) {
    if (!this.widget.drawing) return;
    this.widget.drawing = false;
    this.widget.dial.box.classList.remove('drawing');
    for (const name of Object.keys(PAPER)) this.widget.dial.box.removeAttribute(name);
    if (goes) this.widget.slider.focus({ preventScroll: true });
    this.pen.setAttribute('aria-pressed', false);
    this.pen.textContent = '✎ Draw';
    this.say('');
  }

  listen() {
    const { box, canvas } = this.widget.dial;
    let last = null;
    const point = event => {
      const frame = canvas.getBoundingClientRect();
      const [, height, width] = this.widget.spec.shape;
      return [((event.clientX - frame.left) / frame.width) * width - .5,
        ((event.clientY - frame.top) / frame.height) * height - .5];
    };
    box.addEventListener('keydown', event => {
      if (this.widget.drawing) this.write(event);
    });
    box.addEventListener('pointerdown', event => {
      if (!this.widget.drawing) return;
      event.preventDefault();
      box.setPointerCapture(event.pointerId);
      last = point(event);
      this.stroke(last, last);
    });
    box.addEventListener('pointermove', event => {
      if (!last) return;
      const now = point(event);
      this.stroke(last, now);
      last = now;
    });
    box.addEventListener('pointerup', () => (last = null));
    box.addEventListener('pointercancel', () => (last = null));
  }

  // --- a file: only its pixels are read; neither its name nor what else it says

  async load(input) {
    const [file] = input.files;
    if (!file) return;
    this.stop();
    try {
      const bitmap = await createImageBitmap(file);
      this.keep('loaded', sampled(bitmap, this.widget.spec.shape), 'your file');
      this.widget.set({ picture: 'loaded' });
      this.say('Your file was made small on this machine; it was sent nowhere.');
    } catch {
      this.say('This file is no picture that a browser reads: choose a PNG, JPEG, WebP or GIF.');
    }
    input.value = '';
  }

  // --- drawings fit into an address, four bits a pixel

  encode() {
    const { data } = this.own.get('drawn');
    const pairs = Array.from({ length: Math.ceil(data.length / 2) }, (_, i) => {
      const level = k => Math.round((data[k] ?? 0) * LEVELS);
      return String.fromCharCode(16 * level(2 * i) + level(2 * i + 1));
    });
    return btoa(pairs.join('')).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
  }

  decode(text) {
    const { shape } = this.widget.spec;
    const area = shape[0] * shape[1] * shape[2];
    if (!/^[\w-]*$/.test(text)) return;
    const bytes = bytesOf(text.replaceAll('-', '+').replaceAll('_', '/'));
    if (bytes.length !== Math.ceil(area / 2)) return;
    const level = i => (i % 2 ? bytes[i >> 1] & 15 : bytes[i >> 1] >> 4);
    const data = Float64Array.from({ length: area }, (_, i) => level(i) / LEVELS);
    this.keep('drawn', { data, shape }, 'your drawing');
  }
}

// The picture with a soft stroke of the pen on it.
function inked({ data, shape: [, height, width] }, [x0, y0], [x1, y1]) {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const squared = dx * dx + dy * dy || 1;
  const thick = Math.max(height, width) / 28;
  return data.map((old, i) => {
    const [x, y] = [i % width, Math.floor(i / width) % height];
    const t = clamp(((x - x0) * dx + (y - y0) * dy) / squared, 0, 1);
    const distance = Math.hypot(x - x0 - t * dx, y - y0 - t * dy) / thick;
    const ink = clamp(1.9 - distance, 0, 1);
    return Math.max(old, Math.round(ink * LEVELS) / LEVELS);
  });
}

// The middle square of a bitmap, made small; digits are light on dark, so dark on light is turned
// inside out.
function sampled(bitmap, [channels, height, width]) {
  const canvas = make('canvas', { width, height });
  const context = canvas.getContext('2d');
  const side = Math.min(bitmap.width, bitmap.height);
  context.imageSmoothingQuality = 'high';
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, (bitmap.width - side) / 2, (bitmap.height - side) / 2, side, side,
    0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const area = height * width;
  const rgb = i => [0, 1, 2].map(k => data[4 * i + k] / 255);
  const grey = i => rgb(i).reduce((total, v, k) => total + v * [.299, .587, .114][k], 0);
  const values = Float64Array.from({ length: channels * area }, (_, i) => {
    return channels === 3 ? rgb(i % area)[Math.floor(i / area)] : grey(i % area);
  });
  const corners = [0, width - 1, area - width, area - 1].map(i => values[i]);
  const light = channels === 1 && corners.reduce((a, b) => a + b) > 2;
  return { data: light ? values.map(v => 1 - v) : values, shape: [channels, height, width] };
}

// --- one copy of each network, and of each tensor, however many widgets stand on the page

const networks = new Map();

// What a step leaves out is as usual, and it reads what the one before it gave.
const USUAL = { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 };

// The graph of a network from the steps it takes, which others may take, too, and its own tensors.
function graphOf({ nodes, ...network }, steps) {
  let before = 'input';
  const whole = nodes.map(([number, own]) => {
    const node = { ...USUAL, inputs: [before], ...steps[number], weights: own, tables: own };
    before = node.name;
    return node;
  });
  return { ...network, nodes: whole };
}

function networkOf(graph) {
  const key = JSON.stringify(graph);
  if (!networks.has(key)) {
    const names = graph.nodes.flatMap(({ weights }) => Object.values(weights));
    const own = Object.fromEntries(names.map(name => [name, tensorOf(name)]));
    networks.set(key, readNetwork({ ...graph, tensors: own }));
  }
  return networks.get(key);
}

const tensors = new Map();

function tensorOf(name) {
  if (!tensors.has(name)) {
    for (const block of document.querySelectorAll('.eqtutor-tensors:not([data-read])')) {
      block.dataset.read = '';
      for (const [key, tensor] of Object.entries(JSON.parse(block.textContent))) {
        tensors.set(key, tensor);
      }
    }
  }
  if (!tensors.has(name)) throw new Error(`the page lacks the weights ${name}`);
  return tensors.get(name);
}

// --- a widget: one state, shown at the next frame, said and written down when it has come to rest

class Scene {
  constructor(root, prefix) {
    this.root = root;
    this.prefix = prefix; // of this widget's entries in the address
    this.spec = JSON.parse(root.querySelector('.spec').textContent);
    this.drawing = false;
  }

  // A hand or a finger turns: keys go to the slider, which has no ring until one is pressed.
  takeHold() {
    this.rest();
    this.slider.classList.add('by-hand');
    this.slider.focus({ preventScroll: true });
  }

  begin() {
    this.readAddress();
    addEventListener('hashchange', () => this.readAddress());
    this.request();
  }

  set(change) {
    this.become(change);
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.settle(), 350);
  }

  request() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.show();
    });
  }

  // The page has other colours, perhaps.
  takeInks() {
    const inks = inksOf(this.root);
    if (inks.key === this.inks.key) return;
    this.inks = inks;
    this.gallery.repaint();
    this.request();
  }

  // What the address says of the turn and the picture, and a function for the rest of it.
  address() {
    const entries = new URLSearchParams(location.hash.slice(1));
    const get = key => entries.get(this.prefix + key);
    const change = {};
    const turn = Number.parseFloat(get('turn'));
    if (Number.isFinite(turn)) change.turn = turn;
    if (!this.gallery) return [get, change];
    if (get('ink')) this.gallery.decode(get('ink'));
    const picture = get('picture');
    if (this.gallery.own.has(picture) || Object.hasOwn(this.spec.pictures, picture ?? '')) {
      change.picture = picture;
    }
    return [get, change];
  }

  // What is empty has no entry; a file stays with the reader.
  writeAddress(values) {
    if (document.body.dataset.jpThemeName !== undefined) return; // JupyterLab's address is its own
    const { picture } = this.state;
    const all = { ...values };
    if (picture) all.picture = picture === 'loaded' ? '' : picture;
    if (picture) all.ink = picture === 'drawn' ? this.gallery.encode() : '';
    const entries = new URLSearchParams(location.hash.slice(1));
    for (const [key, value] of Object.entries(all)) {
      if (value === '') entries.delete(this.prefix + key);
      else entries.set(this.prefix + key, value);
    }
    try {
      history.replaceState(history.state, '', `#${entries}`);
    } catch {
      // a page inside another may have no address of its own
    }
  }
}

export { bytesOf, calm, clamp, decimal, Dial, draw, drawArrows, Gallery, graphOf, inkOf, inksOf,
  make, modulo, move, movePlace, nameOf, near, nearestElement, networkOf, onTheme, packed, paint,
  paintInk, paintPicture, percent, placeMark, Scene, short, signed, turnOf };
