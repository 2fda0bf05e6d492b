// The forward pass of a network, in the page: what `network_graph` in eqtutor/widgets/graph.py
// writes as JSON, this module reads and runs. It imports nothing and evaluates nothing: a graph is
// numbers, shapes and names, and names are only ever compared and shown.
//
// Arrays are Float64Arrays, row by row, without a batch axis. By the number of axes a shape is
//   [n] scores · [c, g] a vector on H · [c, h, w] an image · [c, g, h, w] a feature map on G.
//
// A graph has a `format` (others are refused), `name` and `labels` of the network and its scores,
// `input` (shape of a picture), `group` (name, order, matrices, mul, inv, grid), `nodes` in the
// order in which they are computed, `output` (name of the node with the scores), and `tensors` by
// checksum: type (steps, bytes, single, short, whole: little-endian, of 2, 1, 4, 2 and 4 bytes),
// shape, data in base64, and for steps and bytes the length of a step. A node has a `name` (the
// layer's path), an `op`, `inputs` (nodes before it, or 'input'), the `shape` of its value, `type`
// and `title` to show, and keys of tensors in `weights` and `tables`. The operations, with their
// parameters | tensors:
//   convolution   channels, poses, kernel_size, stride, padding, dilation, groups
//                 | filter (o, i, entries), bias, index or turns
//   transposed    stride, padding, dilation | filter (i, o, rows, columns), bias: a convolution
//                 that writes windows in place of reading them
//   scale         | factor, shift of each channel: a batch norm at inference
//   group_norm    groups, channels, eps | factor, shift
//   channel_norm  eps | factor, shift: over the channels at each place
//   relu, sigmoid, silu, tanh
//   add, subtract, multiply, divide   left or right, if that is a number
//   pool          reduce, kernel_size, stride, padding: windows of the last two axes
//   reduce        reduce (max, mean, sum), axes
//   linear, pointwise   | matrix, bias: of the last axis; of the channels at each place
//   reshape, permute    order
//   concatenate   axis
//   slice         starts, steps, sizes
//   constant      | value
//   move          matrix: an element of a group that keeps the pixel grid; poses stay
//   choose        of its inputs behind the first the one whose score in the first is highest
//   write_kernels | weight (entries, slices, features), bias, moved (pose, entry): E4's kernels
//   window_sum    kernel_size, dilation: windows of its second input, with kernels from its first
//   self_attention   heads, reach, crop, scale
//                 | the maps' weights and biases, vectors of offsets (K, R, d), or (heads, K, R, d)
//                   where heads have their own, and of poses; places (c, h, w): what is added
//                   to the features that queries and keys are made of

export const FORMAT = 2;

// --- shapes

function count(shape) {
  return shape.reduce((product, n) => product * n, 1);
}

function stridesOf(shape) {
  const strides = new Array(shape.length).fill(1);
  for (let i = shape.length - 2; i >= 0; i--) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

// Strides with which an array is read in a larger shape: 0 along the axes it is repeated on.
function broadcastStrides(from, to) {
  const strides = stridesOf(from);
  const missing = to.length - from.length;
  return to.map((n, i) => (i < missing || from[i - missing] === 1 ? 0 : strides[i - missing]));
}

// Walks through all rows (the last axis) of a shape; `visit` gets where each row begins in the
// arrays that these strides belong to.
function forEachRow(shape, listOfStrides, visit) {
  const outer = shape.length - 1;
  const place = new Array(outer).fill(0);
  const starts = listOfStrides.map(() => 0);
  for (;;) {
    visit(...starts);
    let axis = outer - 1;
    for (; axis >= 0; axis--) {
      place[axis]++;
      listOfStrides.forEach((strides, i) => (starts[i] += strides[axis]));
      if (place[axis] < shape[axis]) break;
      listOfStrides.forEach((strides, i) => (starts[i] -= strides[axis] * shape[axis]));
      place[axis] = 0;
    }
    if (axis < 0) return;
  }
}

// --- numbers from text

const READERS = {
  steps: { bytes: 2, read: (view, at) => view.getInt16(at, true) },
  bytes: { bytes: 1, read: (view, at) => view.getInt8(at) },
  single: { bytes: 4, read: (view, at) => view.getFloat32(at, true) },
  whole: { bytes: 4, read: (view, at) => view.getUint32(at, true) },
  short: { bytes: 2, read: (view, at) => view.getUint16(at, true) },
};

const decoded = new WeakMap(); // networks on one page share their tensors: each is decoded once

function decode(tensor) {
  if (decoded.has(tensor)) return decoded.get(tensor);
  if (!Object.hasOwn(READERS, tensor.type)) {
    const known = Object.keys(READERS).join(', ');
    throw new Error(`tensor: expected one of the types ${known}, got ${tensor.type}`);
  }
  const { bytes, read } = READERS[tensor.type];
  const { step = 1 } = tensor; // of whole numbers: how much each of them stands for
  const text = atob(tensor.data);
  const n = count(tensor.shape);
  if (text.length !== n * bytes) {
    throw new Error(`tensor: expected ${n * bytes} bytes, got ${text.length}`);
  }
  const view = new DataView(Uint8Array.from(text, letter => letter.charCodeAt(0)).buffer);
  const values = new Float64Array(n).map((_, i) => step * read(view, i * bytes));
  if (!values.every(Number.isFinite)) throw new Error('a weight is infinite or not a number');
  const result = { values, shape: tensor.shape };
  decoded.set(tensor, result);
  return result;
}

// --- convolution

// The filters as the convolution uses them, one row a filter: weights `(o, i, entries)` are read
// through the layer's own tables. `turns[s, p, r]` makes the turned copies of a filter that does
// not land on pixels (off the grid only); `index[h, q, p]` says which entry stands at place p of
// the filter from pose q to pose h.
function expandBank(node, read) {
  const filter = read('filter').values;
  const [out, inside] = node.channels;
  const [outPoses, inPoses] = node.poses;
  const k = node.kernel_size[0] * node.kernel_size[1];
  if (!node.tables.index) return filter; // a plain convolution
  const index = read('index').values;
  const entries = filter.length / (out * inside);
  const bank = new Float64Array(out * outPoses * inside * inPoses * k);
  let at = 0;
  for (let o = 0; o < out; o++) {
    const copies = [];
    for (let i = 0; i < inside; i++) {
      const start = (o * inside + i) * entries;
      const one = filter.subarray(start, start + entries);
      copies.push(node.tables.turns ? turnedCopies(one, read('turns'), k) : one);
    }
    for (let h = 0; h < outPoses; h++) {
      for (let i = 0; i < inside; i++) {
        const start = h * inPoses * k;
        for (let j = 0; j < inPoses * k; j++) bank[at++] = copies[i][index[start + j]];
      }
    }
  }
  return bank;
}

// `(copies, slices, k)` from the slices of one filter.
function turnedCopies(filter, turns, k) {
  const slices = filter.length / k;
  const copies = turns.shape[0];
  const result = new Float64Array(copies * slices * k);
  for (let s = 0; s < copies; s++) {
    for (let n = 0; n < slices; n++) {
      for (let p = 0; p < k; p++) {
        let sum = 0;
        for (let r = 0; r < k; r++) sum += turns.values[(s * k + p) * k + r] * filter[n * k + r];
        result[(s * slices + n) * k + p] = sum;
      }
    }
  }
  return result;
}

// Copies the window of an output pixel, plane after plane; what lies outside the image is zero.
function gatherPatch(patch, x, window, firstPlane, y0, x0) {
  const { planes, rows, columns, kernel, dilation } = window;
  let at = 0;
  for (let plane = firstPlane; plane < firstPlane + planes; plane++) {
    for (let ky = 0; ky < kernel[0]; ky++) {
      const row = y0 + ky * dilation[0];
      const inside = row >= 0 && row < rows;
      const start = (plane * rows + row) * columns;
      for (let kx = 0; kx < kernel[1]; kx++) {
        const column = x0 + kx * dilation[1];
        patch[at++] = inside && column >= 0 && column < columns ? x[start + column] : 0;
      }
    }
  }
}

// `out[f · step]` for the filters from `first` to `last`, rows of `bank`: four at a time, because
// an entry of the patch that was read once then serves four products.
function multiplyFilters(bank, patch, first, last, bias, out, at, step) {
  const n = patch.length;
  let f = first;
  for (; f + 3 < last; f += 4) {
    const a = f * n;
    const b = a + n;
    const c = b + n;
    const d = c + n;
    let sumA = bias[f];
    let sumB = bias[f + 1];
    let sumC = bias[f + 2];
    let sumD = bias[f + 3];
    for (let i = 0; i < n; i++) {
      const value = patch[i];
      sumA += value * bank[a + i];
      sumB += value * bank[b + i];
      sumC += value * bank[c + i];
      sumD += value * bank[d + i];
    }
    out[at + f * step] = sumA;
    out[at + (f + 1) * step] = sumB;
    out[at + (f + 2) * step] = sumC;
    out[at + (f + 3) * step] = sumD;
  }
  for (; f < last; f++) {
    let sum = bias[f];
    for (let i = 0; i < n; i++) sum += patch[i] * bank[f * n + i];
    out[at + f * step] = sum;
  }
}

// Two windows of an image side by side, without the entries that are zero in both: behind a ReLU
// these are more than half. `offsets` says where the entries lie, seen from a window's first pixel.
class WindowPair {
  constructor(offsets) {
    this.offsets = offsets;
    this.count = 0;
    this.entries = new Int32Array(offsets.length); // their numbers in the window …
    this.left = new Float64Array(offsets.length); // … and their values
    this.right = new Float64Array(offsets.length);
  }

  gather(image, first, second) {
    const { offsets, entries, left, right } = this;
    let count = 0;
    for (let i = 0; i < offsets.length; i++) {
      const a = image[first + offsets[i]];
      const b = image[second + offsets[i]];
      if (a === 0 && b === 0) continue;
      entries[count] = i;
      left[count] = a;
      right[count] = b;
      count++;
    }
    this.count = count;
  }

  // Four filters from f on, rows of `bank`, meet both windows: six numbers that are read serve
  // eight products. Values go to `out[to]` and `out[to + apart]`, a filter every `step`.
  meetFour(bank, f, bias, out, to, apart, step) {
    const { count, entries, left, right } = this;
    const a = f * this.offsets.length;
    const b = a + this.offsets.length;
    const c = b + this.offsets.length;
    const d = c + this.offsets.length;
    let leftA = bias[f];
    let leftB = bias[f + 1];
    let leftC = bias[f + 2];
    let leftD = bias[f + 3];
    let rightA = leftA;
    let rightB = leftB;
    let rightC = leftC;
    let rightD = leftD;
    for (let k = 0; k < count; k++) {
      const i = entries[k];
      const here = left[k];
      const there = right[k];
      const weightA = bank[a + i];
      leftA += here * weightA;
      rightA += there * weightA;
      const weightB = bank[b + i];
      leftB += here * weightB;
      rightB += there * weightB;
      const weightC = bank[c + i];
      leftC += here * weightC;
      rightC += there * weightC;
      const weightD = bank[d + i];
      leftD += here * weightD;
      rightD += there * weightD;
    }
    out[to + apart] = rightA;
    out[to] = leftA;
    out[to + step + apart] = rightB;
    out[to + step] = leftB;
    out[to + 2 * step + apart] = rightC;
    out[to + 2 * step] = leftC;
    out[to + 3 * step + apart] = rightD;
    out[to + 3 * step] = leftD;
  }

  // The same for one filter.
  meet(bank, f, bias, out, to, apart) {
    const { count, entries, left, right } = this;
    const start = f * this.offsets.length;
    let here = bias[f];
    let there = here;
    for (let k = 0; k < count; k++) {
      const weight = bank[start + entries[k]];
      here += left[k] * weight;
      there += right[k] * weight;
    }
    out[to + apart] = there;
    out[to] = here;
  }
}

// Planes with zeros around them, `above` rows and `beside` columns at either side.
function padded(x, [rows, columns], above, beside) {
  if (!above && !beside) return x;
  const wide = columns + 2 * beside;
  const tall = rows + 2 * above;
  const planes = x.length / (rows * columns);
  const out = new Float64Array(planes * tall * wide);
  for (let row = 0; row < planes * rows; row++) {
    const to = (Math.floor(row / rows) * tall + (row % rows) + above) * wide + beside;
    out.set(x.subarray(row * columns, (row + 1) * columns), to);
  }
  return out;
}

function convolution(node, [shape], read) {
  const [rows, columns] = shape.slice(-2);
  const [height, width] = node.shape.slice(-2);
  const { stride, padding, dilation, groups } = node;
  const kernel = node.kernel_size;
  const bank = expandBank(node, read);
  const filters = count(node.shape) / (height * width);
  const bias = new Float64Array(filters);
  if (node.weights.bias) {
    const given = read('bias').values;
    const poses = filters / given.length;
    bias.forEach((_, f) => (bias[f] = given[Math.floor(f / poses)]));
  }
  const planes = count(shape) / (rows * columns) / groups;
  const window = { planes, rows, columns, kernel, dilation };
  const n = planes * kernel[0] * kernel[1];
  const perGroup = filters / groups;
  const wide = columns + 2 * padding[1];
  const plane = (rows + 2 * padding[0]) * wide;
  const pair = new WindowPair(Int32Array.from({ length: n }, (_, i) => {
    const [ky, kx] = [Math.floor(i / kernel[1]) % kernel[0], i % kernel[1]];
    const start = Math.floor(i / (kernel[0] * kernel[1])) * plane;
    return start + ky * dilation[0] * wide + kx * dilation[1];
  }));

  // Two pixels of a row; the last one of an odd row is its own neighbour.
  function computePair(image, out, g, y, x) {
    const apart = x + 1 < width ? 1 : 0;
    const first = g * planes * plane + y * stride[0] * wide + x * stride[1];
    pair.gather(image, first, first + apart * stride[1]);
    const last = (g + 1) * perGroup;
    let f = g * perGroup;
    let to = (f * height + y) * width + x;
    const step = height * width;
    for (; f + 3 < last; f += 4, to += 4 * step) {
      pair.meetFour(bank, f, bias, out, to, apart, step);
    }
    for (; f < last; f++, to += step) pair.meet(bank, f, bias, out, to, apart);
  }

  function run([x]) {
    const image = padded(x, [rows, columns], padding[0], padding[1]);
    const out = new Float64Array(filters * height * width);
    for (let g = 0; g < groups; g++) {
      for (let y = 0; y < height; y++) {
        for (let column = 0; column < width; column += 2) computePair(image, out, g, y, column);
      }
    }
    return out;
  }

  // Each term of one value: the filter of an input channel and pose, and the patch it meets.
  function explain([x], [channel, pose, y, column]) {
    const f = channel * node.poses[0] + pose;
    const first = Math.floor(f / perGroup) * planes;
    const patch = new Float64Array(n);
    gatherPatch(patch, x, window, first, y * stride[0] - padding[0],
      column * stride[1] - padding[1]);
    const k = kernel[0] * kernel[1];
    const terms = [];
    let value = bias[f];
    for (let plane = 0; plane < planes; plane++) {
      const start = (f * planes + plane) * k;
      const term = {
        channel: Math.floor((first + plane) / node.poses[1]),
        pose: (first + plane) % node.poses[1],
        filter: bank.slice(start, start + k),
        patch: patch.slice(plane * k, plane * k + k),
        size: kernel,
      };
      term.sum = term.filter.reduce((sum, w, i) => sum + w * term.patch[i], 0);
      value += term.sum;
      terms.push(term);
    }
    return { value, terms, bias: bias[f] };
  }

  return { run, explain };
}

// --- norms

// A norm at inference: a factor and a shift a channel.
function scale(node, [shape], read) {
  const factor = read('factor').values;
  const shift = read('shift').values;
  const inner = count(shape) / shape[0];

  function run([x]) {
    const out = new Float64Array(x.length);
    for (let c = 0; c < shape[0]; c++) {
      const [first, last] = [c * inner, (c + 1) * inner];
      for (let i = first; i < last; i++) out[i] = x[i] * factor[c] + shift[c];
    }
    return out;
  }
  return { run };
}

// Mean 0 and variance 1 of each group of planes, then a factor and a shift for each of `channels`.
function groupNorm(node, [shape], read) {
  const inner = count(shape) / node.groups;
  const each = count(shape) / node.channels;
  const factor = node.weights.factor ? read('factor').values : null;
  const shift = node.weights.shift ? read('shift').values : null;

  function run([x]) {
    const out = new Float64Array(x.length);
    for (let start = 0; start < x.length; start += inner) {
      const part = x.subarray(start, start + inner);
      const { mean, deviation } = moments(part, node.eps);
      for (let i = 0; i < inner; i++) out[start + i] = (part[i] - mean) / deviation;
    }
    return affine(out, factor, shift, i => Math.floor(i / each));
  }
  return { run };
}

// The same over the channels at each place.
function channelNorm(node, [shape], read) {
  const channels = shape[0];
  const places = count(shape) / channels;
  const factor = node.weights.factor ? read('factor').values : null;
  const shift = node.weights.shift ? read('shift').values : null;
  const column = new Float64Array(channels);

  function run([x]) {
    const out = new Float64Array(x.length);
    for (let place = 0; place < places; place++) {
      for (let c = 0; c < channels; c++) column[c] = x[c * places + place];
      const { mean, deviation } = moments(column, node.eps);
      for (let c = 0; c < channels; c++) out[c * places + place] = (column[c] - mean) / deviation;
    }
    return affine(out, factor, shift, i => Math.floor(i / places));
  }
  return { run };
}

function moments(values, eps) {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i];
  const mean = sum / values.length;
  let squares = 0;
  for (let i = 0; i < values.length; i++) squares += (values[i] - mean) ** 2;
  return { mean, deviation: Math.sqrt(squares / values.length + eps) };
}

function affine(values, factor, shift, channelOf) {
  if (factor) values.forEach((value, i) => (values[i] = value * factor[channelOf(i)]));
  if (shift) values.forEach((value, i) => (values[i] = value + shift[channelOf(i)]));
  return values;
}

// --- value by value

function sigmoidOf(value) {
  return 1 / (1 + Math.exp(-value));
}

function elementwise(f) {
  return () => ({ run: ([x]) => x.map(f) });
}

// The same as `elementwise` would do it, but every layer has one: here no function is called.
const relu = () => ({
  run([x]) {
    const out = new Float64Array(x.length);
    for (let i = 0; i < x.length; i++) out[i] = x[i] > 0 ? x[i] : 0;
    return out;
  },
});

// Two arrays, or one and a number; the smaller is repeated as torch does.
function arithmetic(f) {
  return (node, shapes) => {
    const shape = node.shape.length ? node.shape : [1];
    const [first, second] = [0, 1].map(i => shapes[i] && broadcastStrides(shapes[i], shape));
    const n = shape[shape.length - 1];
    const run = inputs => {
      if (inputs.length === 1) {
        const right = inputs[0];
        if (node.left !== undefined) return right.map(value => f(node.left, value));
        return right.map(value => f(value, node.right));
      }
      const [a, b] = inputs;
      const out = new Float64Array(count(shape));
      const [stepA, stepB] = [first, second].map(strides => strides[strides.length - 1]);
      forEachRow(shape, [stridesOf(shape), first, second], (at, atA, atB) => {
        for (let i = 0; i < n; i++) out[at + i] = f(a[atA + i * stepA], b[atB + i * stepB]);
      });
      return out;
    };
    return { run };
  };
}

// --- pools and reductions

function pool(node, [shape]) {
  const [rows, columns] = shape.slice(-2);
  const [height, width] = node.shape.slice(-2);
  const planes = count(shape) / (rows * columns);
  const { stride, padding } = node;
  const [ky, kx] = node.kernel_size;
  const isMax = node.reduce === 'max';

  function value(x, start, y0, x0) {
    const [top, left] = [Math.max(y0, 0), Math.max(x0, 0)];
    const [bottom, right] = [Math.min(y0 + ky, rows), Math.min(x0 + kx, columns)];
    let sum = 0;
    let most = -Infinity;
    for (let y = top; y < bottom; y++) {
      for (let at = start + y * columns + left; at < start + y * columns + right; at++) {
        sum += x[at];
        if (x[at] > most) most = x[at];
      }
    }
    return isMax ? most : sum / (ky * kx); // zeros outside count
  }

  function run([x]) {
    const out = new Float64Array(planes * height * width);
    let at = 0;
    for (let plane = 0; plane < planes; plane++) {
      for (let y = 0; y < height; y++) {
        for (let column = 0; column < width; column++) {
          out[at++] = value(x, plane * rows * columns, y * stride[0] - padding[0],
            column * stride[1] - padding[1]);
        }
      }
    }
    return out;
  }
  return { run };
}

// Maximum, mean or sum over some axes.
function reduce(node, [shape]) {
  const kept = shape.map((n, axis) => (node.axes.includes(axis) ? 1 : n));
  const outStrides = broadcastStrides(kept, shape);
  const step = outStrides[shape.length - 1];
  const n = shape[shape.length - 1];
  const terms = count(shape) / count(kept);
  const isMax = node.reduce === 'max';

  function run([x]) {
    const out = new Float64Array(count(kept)).fill(isMax ? -Infinity : 0);
    forEachRow(shape, [stridesOf(shape), outStrides], (at, to) => {
      for (let i = 0; i < n; i++) {
        const place = to + i * step;
        out[place] = isMax ? Math.max(out[place], x[at + i]) : out[place] + x[at + i];
      }
    });
    return node.reduce === 'mean' ? out.map(value => value / terms) : out;
  }
  return { run };
}

// --- maps of vectors, and the same numbers in another shape

function linear(node, [shape], read) {
  const { values: matrix, shape: [rows, columns] } = read('matrix');
  const bias = node.weights.bias ? read('bias').values : new Float64Array(rows);
  const vectors = count(shape) / columns;

  function run([x]) {
    const out = new Float64Array(vectors * rows);
    for (let v = 0; v < vectors; v++) {
      const vector = x.subarray(v * columns, (v + 1) * columns);
      multiplyFilters(matrix, vector, 0, rows, bias, out, v * rows, 1);
    }
    return out;
  }
  return { run };
}

// The same map of the channels at every place and pose.
function pointwise(node, [shape], read) {
  const { values: matrix, shape: [rows, columns] } = read('matrix');
  const bias = node.weights.bias ? read('bias').values : new Float64Array(rows);
  const places = count(shape) / columns;
  const vector = new Float64Array(columns);

  function run([x]) {
    const out = new Float64Array(rows * places);
    for (let place = 0; place < places; place++) {
      for (let c = 0; c < columns; c++) vector[c] = x[c * places + place];
      multiplyFilters(matrix, vector, 0, rows, bias, out, place, places);
    }
    return out;
  }
  return { run };
}

const reshape = () => ({ run: ([x]) => x });

function constant(node, shapes, read) {
  const { values } = read('value');
  return { run: () => values };
}

// Joined along an axis that all of them have.
function concatenate(node, shapes) {
  const inner = shapes.map(shape => count(shape.slice(node.axis)));
  const outer = count(shapes[0].slice(0, node.axis));
  const total = inner.reduce((a, b) => a + b, 0);

  function run(inputs) {
    const out = new Float64Array(outer * total);
    let at = 0;
    for (let o = 0; o < outer; o++) {
      inputs.forEach((x, i) => {
        out.set(x.subarray(o * inner[i], (o + 1) * inner[i]), at);
        at += inner[i];
      });
    }
    return out;
  }
  return { run };
}

// Axes in another order: axis i of the result is axis order[i] of the input.
function permute(node, [shape]) {
  const strides = stridesOf(shape);
  const moved = node.order.map(axis => strides[axis]);
  const sizes = node.shape;
  const n = sizes[sizes.length - 1];
  const step = moved[moved.length - 1];

  function run([x]) {
    const out = new Float64Array(x.length);
    forEachRow(sizes, [stridesOf(sizes), moved], (at, from) => {
      for (let i = 0; i < n; i++) out[at + i] = x[from + i * step];
    });
    return out;
  }
  return { run };
}

// Every step-th entry from a start on, along each axis.
function slice(node, [shape]) {
  const from = stridesOf(shape);
  const strides = from.map((s, axis) => s * node.steps[axis]);
  const start = from.reduce((sum, s, axis) => sum + s * node.starts[axis], 0);
  const sizes = node.sizes;
  const n = sizes[sizes.length - 1];
  const step = strides[strides.length - 1];

  function run([x]) {
    const out = new Float64Array(count(sizes));
    forEachRow(sizes, [stridesOf(sizes), strides], (at, offset) => {
      for (let i = 0; i < n; i++) out[at + i] = x[start + offset + i * step];
    });
    return out;
  }
  return { run };
}

// --- copies of a picture

// Each plane with its columns reversed.
export function flipColumns({ data, shape }) {
  const width = shape[shape.length - 1];
  const flipped = data.map((_, i) => data[i - (i % width) + (width - 1 - (i % width))]);
  return { data: flipped, shape };
}

function moveBy(node, [shape]) {
  const [[a, c], [b, d]] = node.matrix; // columns: where right and up go
  const mirror = a * d - b * c < 0;
  const angle = mirror ? Math.atan2(-b, -a) : Math.atan2(b, a);
  const turns = ((Math.round((2 * angle) / Math.PI) % 4) + 4) % 4;

  function run([x]) {
    const whole = { data: x, shape };
    return moveExactly((mirror ? flipColumns(whole) : whole).data, shape, turns).data;
  }
  return { run };
}

// The first of those that score highest.
const choose = () => ({
  run: ([scores, ...copies]) => copies[scores.indexOf(Math.max(...scores))],
});

// --- E4: kernels written from the features at a place

// Features `[m, g, h, w]` to kernels `[s, v, g, h, w]`: at pose g, entry v of the kernels is
// written by row moved[g, v] of the weight.
function writeKernels(node, [shape], read) {
  const { values: weight, shape: [entries, slices, features] } = read('weight');
  const bias = node.weights.bias ? read('bias').values : new Float64Array(entries * slices);
  const moved = read('moved').values;
  const [, poses, rows, columns] = shape;
  const area = rows * columns;
  const writers = Array.from({ length: poses }, (_, pose) => {
    const matrix = new Float64Array(slices * entries * features);
    const fixed = new Float64Array(slices * entries);
    for (let s = 0; s < slices; s++) {
      for (let v = 0; v < entries; v++) {
        const from = moved[pose * entries + v] * slices + s;
        const to = s * entries + v;
        fixed[to] = bias[from];
        matrix.set(weight.subarray(from * features, (from + 1) * features), to * features);
      }
    }
    return { matrix, fixed };
  });
  const vector = new Float64Array(features);

  function run([z]) {
    const planes = poses * area;
    const out = new Float64Array(slices * entries * planes);
    for (let place = 0; place < planes; place++) {
      const { matrix, fixed } = writers[Math.floor(place / area)];
      for (let m = 0; m < features; m++) vector[m] = z[m * planes + place];
      multiplyFilters(matrix, vector, 0, fixed.length, fixed, out, place, planes);
    }
    return out;
  }
  return { run };
}

// Kernels `[s, v, …, h, w]` and values `[c, …, h, w]`: each place sums its window with its own
// kernel, which c/s channels share; zeros outside.
function windowSum(node, [kernelShape, shape]) {
  const [slices, entries] = kernelShape;
  const channels = shape[0];
  const [rows, columns] = shape.slice(-2);
  const poses = count(shape) / (channels * rows * columns);
  const k = node.kernel_size;
  const { dilation } = node;
  const half = (k - 1) / 2;
  const area = rows * columns;
  const kernelAt = (c, v, pose) =>
    ((Math.floor((c * slices) / channels) * entries + v) * poses + pose) * area;

  function run([kernels, values]) {
    const out = new Float64Array(values.length);
    for (let c = 0; c < channels; c++) {
      for (let pose = 0; pose < poses; pose++) {
        const start = (c * poses + pose) * area;
        for (let v = 0; v < entries; v++) {
          const dy = (Math.floor(v / k) - half) * dilation;
          const dx = ((v % k) - half) * dilation;
          addProducts(out, kernels, values, start, kernelAt(c, v, pose), dy, dx);
        }
      }
    }
    return out;
  }

  // out(x) += kernel(x) · values(x + Δ), where x + Δ lies inside.
  function addProducts(out, kernels, values, start, kernel, dy, dx) {
    const first = Math.max(0, -dx);
    const last = Math.min(columns, columns - dx);
    for (let y = Math.max(0, -dy); y < Math.min(rows, rows - dy); y++) {
      const row = start + y * columns;
      const shifted = row + dy * columns + dx;
      const weights = kernel + y * columns;
      for (let x = first; x < last; x++) {
        out[row + x] += kernels[weights + x] * values[shifted + x];
      }
    }
  }

  // One term: the kernel that was written at this place, and the window it meets.
  function explain([kernels, values], [channel, pose, y, x]) {
    const window = { planes: 1, rows, columns, kernel: [k, k], dilation: [dilation, dilation] };
    const patch = new Float64Array(entries);
    const reach = half * dilation;
    gatherPatch(patch, values, window, channel * poses + pose, y - reach, x - reach);
    const at = y * columns + x;
    const filter = patch.map((_, v) => kernels[kernelAt(channel, v, pose) + at]);
    const value = filter.reduce((sum, w, v) => sum + w * patch[v], 0);
    const term = { channel, pose, filter, patch, size: [k, k], sum: value };
    return { value, terms: [term], bias: 0 };
  }

  // The kernel that a place writes, laid on the image around it: entry Δ lies on x + Δ.
  function listen([kernels]) {
    function at([row, column], kernel, pose) {
      const out = new Float64Array(area);
      for (let v = 0; v < entries; v++) {
        const y = row + (Math.floor(v / k) - half) * dilation;
        const x = column + ((v % k) - half) * dilation;
        if (y < 0 || y >= rows || x < 0 || x >= columns) continue;
        const plane = ((kernel * entries + v) * poses + pose) * area;
        out[y * columns + x] = kernels[plane + row * columns + column];
      }
      return out;
    }
    const reach = [half * dilation, half * dilation];
    return { rows, columns, heads: slices, queries: 1, poses, signed: true, reach, at };
  }

  return { run, explain, listen };
}

// --- the transposed convolution: each pixel writes a window

function transposed(node, [shape], read) {
  const { values: filter, shape: [inside, outside, tall, wide] } = read('filter');
  const [rows, columns] = shape.slice(-2);
  const [height, width] = node.shape.slice(-2);
  const { stride, padding, dilation } = node;
  const bias = node.weights.bias ? read('bias').values : new Float64Array(outside);

  function run([x]) {
    const out = new Float64Array(outside * height * width);
    bias.forEach((value, o) => out.fill(value, o * height * width, (o + 1) * height * width));
    for (let at = 0; at < inside * rows * columns; at++) {
      if (x[at] === 0) continue;
      const i = Math.floor(at / (rows * columns));
      const top = (Math.floor(at / columns) % rows) * stride[0] - padding[0];
      const left = (at % columns) * stride[1] - padding[1];
      let entry = i * outside * tall * wide;
      for (let o = 0; o < outside; o++) {
        for (let ky = 0; ky < tall; ky++) {
          const row = top + ky * dilation[0];
          const start = (o * height + row) * width;
          for (let kx = 0; kx < wide; kx++, entry++) {
            const column = left + kx * dilation[1];
            if (row < 0 || row >= height || column < 0 || column >= width) continue;
            out[start + column] += x[at] * filter[entry];
          }
        }
      }
    }
    return out;
  }
  return { run };
}

// --- self-attention on a group

// Softmax over the sources (pose q, offset within reach) of
//   query · (key(q, x + Δ) + pose vector(s, q) + offset vector(Δ, r)),
// for each head, query pose s and target pose r; a target sums over the query poses.
function selfAttention(node, [shape], read) {
  const numbers = name => read(name).values;
  const table = read('offsets');
  const [offsets, targets, width] = table.shape.slice(-3);
  const offsetVectors = table.values;
  const perHead = table.shape.length > 3 ? offsets * targets * width : 0;
  const { shape: [passes, poses], values: poseVectors } = read('poses');
  const channels = shape[0];
  const [rows, columns] = shape.slice(-2);
  const area = rows * columns;
  const { heads, crop, scale: factor } = node;
  const [reachY, reachX] = node.reach;
  const features = heads * width;
  const across = 2 * reachX + 1;
  const maps = ['query', 'key', 'value'].map(name => ({
    matrix: numbers(`${name}_weight`),
    bias: numbers(`${name}_bias`),
  }));
  const outMatrix = numbers('out_weight');
  const outBias = numbers('out_bias');
  const outChannels = outBias.length;
  const outPoses = node.shape.length > 3 ? node.shape[1] : 1;
  const absolute = node.weights.places ? numbers('places') : null;
  const projected = new WeakMap(); // by features: a pointer asks many times of the same picture

  // Queries, keys and values, `[pose, y, x, head, width]` each.
  function project(x) {
    if (!projected.has(x)) {
      const at = absolute ? x.map((value, i) => value + absolute[i]) : x;
      projected.set(x, maps.map((map, i) => projectBy(map, i < 2 ? at : x)));
    }
    return projected.get(x);
  }

  function projectBy({ matrix, bias }, x) {
    const vector = new Float64Array(channels);
    const places = poses * area;
    const out = new Float64Array(places * features);
    for (let place = 0; place < places; place++) {
      for (let c = 0; c < channels; c++) vector[c] = x[c * places + place];
      multiplyFilters(matrix, vector, 0, features, bias, out, place * features, 1);
    }
    return out;
  }

  const sources = new Int32Array(offsets);
  const own = new Float64Array(poses);
  const byPose = new Float64Array(poses * offsets);
  const levels = new Float64Array(offsets);
  const byOffset = new Float64Array(offsets);

  // Where in keys and values the source (q, Δ) of a pixel is, for q = 0; −1 outside the image.
  function findSources(y, x) {
    for (let k = 0; k < offsets; k++) {
      const row = y + Math.floor(k / across) - reachY;
      const column = x + (k % across) - reachX;
      const inside = row >= 0 && row < rows && column >= 0 && column < columns;
      sources[k] = inside ? (row * columns + column) * features : -1;
    }
  }

  function dot(a, i, b, j) {
    let sum = 0;
    for (let d = 0; d < width; d++) sum += a[i + d] * b[j + d];
    return sum;
  }

  // The weight of a source is a product: a softmax over the poses at each offset, times one over
  // the offsets, whose scores are the offset's own and the logarithm of the first one's sum.
  function overPoses(queries, at, keys, start, pass, s) {
    for (let q = 0; q < poses; q++) {
      const vector = ((pass * poses + s) * poses + q) * width;
      own[q] = dot(queries, at, poseVectors, vector);
    }
    for (let k = 0; k < offsets; k++) {
      levels[k] = -Infinity;
      if (sources[k] < 0) continue;
      let top = -Infinity;
      for (let q = 0; q < poses; q++) {
        const key = sources[k] + q * area * features + start;
        const score = factor * (dot(queries, at, keys, key) + own[q]);
        byPose[q * offsets + k] = score;
        if (score > top) top = score;
      }
      let sum = 0;
      for (let q = 0; q < poses; q++) {
        const power = Math.exp(byPose[q * offsets + k] - top);
        byPose[q * offsets + k] = power;
        sum += power;
      }
      for (let q = 0; q < poses; q++) byPose[q * offsets + k] /= sum;
      levels[k] = top + Math.log(sum);
    }
  }

  function overOffsets(queries, at, r, head) {
    let top = -Infinity;
    for (let k = 0; k < offsets; k++) {
      if (sources[k] < 0) continue;
      const vector = head * perHead + (k * targets + r) * width;
      byOffset[k] = levels[k] + factor * dot(queries, at, offsetVectors, vector);
      if (byOffset[k] > top) top = byOffset[k];
    }
    let sum = 0;
    for (let k = 0; k < offsets; k++) {
      byOffset[k] = sources[k] < 0 ? 0 : Math.exp(byOffset[k] - top);
      sum += byOffset[k];
    }
    for (let k = 0; k < offsets; k++) byOffset[k] /= sum;
  }

  // Calls `visit(r, s)` for all query poses s and target poses r of a pixel, or for one target,
  // when `byPose` and `byOffset` hold the weights of one head.
  function forEachWeights(queries, keys, head, y, x, visit, target) {
    for (let s = 0; s < poses; s++) {
      const at = ((s * rows + y) * columns + x) * features + head * width;
      for (let pass = 0; pass < passes; pass++) {
        if (target !== undefined && passes > 1 && pass !== target) continue;
        overPoses(queries, at, keys, head * width, pass, s);
        const [first, last] = passes === 1 ? [0, targets] : [pass, pass + 1];
        for (let r = first; r < last; r++) {
          if (target !== undefined && r !== target) continue;
          overOffsets(queries, at, r, head);
          visit(r, s);
        }
      }
    }
  }

  // The weight of each source, added to part number `part` of `sums`.
  function addWeights(sums, part) {
    for (let q = 0; q < poses; q++) {
      const start = (part * poses + q) * offsets;
      for (let k = 0; k < offsets; k++) {
        if (sources[k] >= 0) sums[start + k] += byPose[q * offsets + k] * byOffset[k];
      }
    }
  }

  function run([x]) {
    const [queries, keys, values] = project(x);
    const [height, wide] = node.shape.slice(-2);
    const out = new Float64Array(count(node.shape));
    const mixed = new Float64Array(targets * features);
    const shares = new Float64Array(targets * poses * offsets);
    for (let y = 0; y < height; y++) {
      for (let column = 0; column < wide; column++) {
        mixed.fill(0);
        findSources(y + crop, column + crop);
        for (let head = 0; head < heads; head++) {
          shares.fill(0);
          const add = target => addWeights(shares, target);
          forEachWeights(queries, keys, head, y + crop, column + crop, add);
          mixValues(values, head, shares, mixed);
        }
        for (let pose = 0; pose < outPoses; pose++) {
          const r = targets === 1 ? 0 : pose;
          const vector = mixed.subarray(r * features, (r + 1) * features);
          const at = (pose * height + y) * wide + column;
          multiplyFilters(outMatrix, vector, 0, outChannels, outBias, out, at,
            outPoses * height * wide);
        }
      }
    }
    return out;
  }

  function mixValues(values, head, shares, mixed) {
    for (let r = 0; r < targets; r++) {
      const to = r * features + head * width;
      for (let q = 0; q < poses; q++) {
        for (let k = 0; k < offsets; k++) {
          if (sources[k] < 0) continue;
          const share = shares[(r * poses + q) * offsets + k];
          const from = sources[k] + q * area * features + head * width;
          for (let d = 0; d < width; d++) mixed[to + d] += share * values[from + d];
        }
      }
    }
  }

  // The weights of one pixel of the input, `[s, q, rows, columns]` within reach: for each query
  // pose s they sum to 1.
  function attention([x], [row, column], head, target) {
    const [queries, keys] = project(x);
    const data = new Float64Array(poses * poses * offsets);
    findSources(row, column);
    forEachWeights(queries, keys, head, row, column, (r, s) => {
      addWeights(data, s);
    }, targets === 1 ? 0 : target);
    return { data, shape: [poses, poses, 2 * reachY + 1, across] };
  }

  // Whom each pixel listens to: `at` gives its weights over the image, mean of the query poses and
  // sum over the sources' poses, which sum to 1; `pair` how one of them came about.
  function listen([x]) {
    const [queries, keys] = project(x);
    const targetOf = pose => (targets === 1 ? 0 : pose);

    function at([row, column], head, pose) {
      const out = new Float64Array(area);
      findSources(row, column);
      forEachWeights(queries, keys, head, row, column, () => {
        for (let k = 0; k < offsets; k++) {
          if (sources[k] < 0) continue;
          let sum = 0;
          for (let q = 0; q < poses; q++) sum += byPose[q * offsets + k];
          out[sources[k] / features] += (sum * byOffset[k]) / poses;
        }
      }, targetOf(pose));
      return out;
    }

    // The strongest pair of poses, query and source, between two places; null out of reach.
    function pair([row, column], [toRow, toColumn], head, pose) {
      const [dy, dx] = [toRow - row, toColumn - column];
      if (Math.abs(dy) > reachY || Math.abs(dx) > reachX) return null;
      const k = (dy + reachY) * across + dx + reachX;
      const r = targetOf(pose);
      let best = null;
      findSources(row, column);
      forEachWeights(queries, keys, head, row, column, (_, s) => {
        for (let q = 0; q < poses; q++) {
          const weight = byPose[q * offsets + k] * byOffset[k];
          if (!best || weight > best.weight) best = { queryPose: s, source: q, weight };
        }
      }, r);
      const vector = (array, start) => array.slice(start, start + width);
      const { queryPose, source } = best;
      const start = head * width;
      const placeOf = (s, y, column_) => ((s * rows + y) * columns + column_) * features + start;
      const query = vector(queries, placeOf(queryPose, row, column));
      const key = vector(keys, placeOf(source, toRow, toColumn));
      const offset = vector(offsetVectors, head * perHead + (k * targets + r) * width);
      const pass = passes === 1 ? 0 : r;
      const relation = vector(poseVectors, ((pass * poses + queryPose) * poses + source) * width);
      const encoding = offset.map((value, d) => value + relation[d]);
      const product = query.reduce((sum, value, d) => sum + value * (key[d] + encoding[d]), 0);
      return { ...best, query, key, encoding, factor, score: factor * product };
    }

    return { rows, columns, heads, queries: poses, poses: targets, signed: false,
      reach: [reachY, reachX], at, pair };
  }

  return { run, attention, listen };
}

const OPERATIONS = {
  convolution,
  transposed,
  scale,
  group_norm: groupNorm,
  channel_norm: channelNorm,
  relu,
  sigmoid: elementwise(sigmoidOf),
  silu: elementwise(value => value * sigmoidOf(value)),
  tanh: elementwise(Math.tanh),
  add: arithmetic((a, b) => a + b),
  subtract: arithmetic((a, b) => a - b),
  multiply: arithmetic((a, b) => a * b),
  divide: arithmetic((a, b) => a / b),
  pool,
  reduce,
  linear,
  pointwise,
  reshape,
  constant,
  concatenate,
  slice,
  permute,
  move: moveBy,
  choose,
  write_kernels: writeKernels,
  window_sum: windowSum,
  self_attention: selfAttention,
};

// --- the network

class Network {
  constructor(graph) {
    if (graph.format !== FORMAT) {
      throw new Error(`graph: expected format ${FORMAT}, got ${graph.format}`);
    }
    this.name = graph.name;
    this.input = graph.input;
    this.group = graph.group;
    this.labels = graph.labels;
    this.output = graph.output;
    const shapes = new Map([['input', graph.input]]);
    this.nodes = graph.nodes.map(node => prepare(node, shapes, graph.tensors));
    if (!shapes.has(this.output)) throw new Error(`graph: there is no node ${this.output}`);
  }

  // The value of every node, by name, for a picture of `input`; of those before a node only, if
  // that is named: what it takes to explain it or to see where it attends. Values that another
  // network has computed from this picture by the same nodes may be given.
  run(picture, before, known = new Map()) {
    if (picture.length !== count(this.input)) {
      const wanted = this.input.join('×');
      throw new Error(`expected a picture of ${wanted} numbers, got ${picture.length}`);
    }
    const data = Float64Array.from(picture);
    const values = new Map([['input', { data, shape: this.input }]]);
    for (const node of this.nodes) {
      if (node.name === before) break;
      if (known.has(node.name)) {
        values.set(node.name, known.get(node.name));
        continue;
      }
      const result = node.run(node.inputs.map(name => values.get(name).data));
      if (result.length !== count(node.shape)) {
        throw new Error(`${node.name} gave ${result.length} numbers, expected ${node.shape}`);
      }
      values.set(node.name, { data: result, shape: node.shape });
    }
    return values;
  }

  // How one value came about: for a convolution its terms, filter × patch; null where a layer
  // has no such answer.
  explain(values, name, place) {
    const node = this.nodes.find(each => each.name === name);
    if (!node || !node.explain) return null;
    return node.explain(node.inputs.map(input => values.get(input).data), place);
  }

  // Attention weights of one pixel, [row, column] of the layer's input, in a head and for a target
  // pose, `[query pose, source pose, rows, columns]`; null where a layer does not attend.
  attention(values, name, place, head, pose) {
    const node = this.nodes.find(each => each.name === name);
    if (!node || !node.attention) return null;
    return node.attention(node.inputs.map(input => values.get(input).data), place, head, pose);
  }

  // Of a layer that attends or writes kernels: `at(place, head, pose)`, for any pixel of its input
  // what it listens to, as a map of the image; null where a layer does neither.
  listen(values, name) {
    const node = this.nodes.find(each => each.name === name);
    if (!node || !node.listen) return null;
    return node.listen(node.inputs.map(input => values.get(input).data));
  }
}

function prepare(node, shapes, tensors) {
  if (!Object.hasOwn(OPERATIONS, node.op)) {
    const known = Object.keys(OPERATIONS).join(', ');
    throw new Error(`${node.name}: expected one of the operations ${known}, got ${node.op}`);
  }
  const inputShapes = node.inputs.map(name => {
    if (shapes.has(name)) return shapes.get(name);
    throw new Error(`${node.name} reads ${name}, which no node before it computes`);
  });
  if (!node.shape.every(n => Number.isInteger(n) && n > 0)) {
    throw new Error(`${node.name}: expected a shape of whole numbers, got ${node.shape}`);
  }
  const references = { ...node.weights, ...node.tables };
  const read = name => {
    if (Object.hasOwn(tensors, references[name])) return decode(tensors[references[name]]);
    throw new Error(`${node.name}: there is no tensor ${references[name]} for its ${name}`);
  };
  const operation = OPERATIONS[node.op](node, inputShapes, read);
  shapes.set(node.name, node.shape);
  return { name: node.name, inputs: node.inputs, shape: node.shape, ...operation };
}

// A network from what `network_graph` wrote.
export function readNetwork(graph) {
  return new Network(graph);
}

// --- how pictures move

// Planes turned counter-clockwise by quarter turns: pixels land on pixels, height and width swap
// on an odd number of turns.
function moveExactly(data, shape, turns) {
  const [rows, columns] = shape.slice(-2);
  const swaps = turns % 2 === 1;
  const [height, width] = swaps ? [columns, rows] : [rows, columns];
  const out = new Float64Array(data.length);
  // of a plane's first pixel: where it was; and by how much that changes with x and with y
  const [from, stepX, stepY] = [
    [0, 1, columns],
    [columns - 1, columns, -1],
    [rows * columns - 1, -1, -columns],
    [(rows - 1) * columns, -columns, 1],
  ][turns];
  let at = 0;
  for (let start = from; start < from + data.length; start += rows * columns) {
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) out[at++] = data[start + x * stepX + y * stepY];
    }
  }
  return { data: out, shape: [...shape.slice(0, -2), height, width] };
}

// Planes read at the points `inverse · p`, x right and y up from the centre: bilinear, zeros
// outside.
function interpolate(data, shape, [[a, b], [c, d]]) {
  const [rows, columns] = shape.slice(-2);
  const area = rows * columns;
  const out = new Float64Array(data.length);
  const [middleX, middleY] = [(columns - 1) / 2, (rows - 1) / 2];
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      const [px, py] = [x - middleX, middleY - y];
      const column = a * px + b * py + middleX;
      const row = middleY - (c * px + d * py);
      const [left, top] = [Math.floor(column), Math.floor(row)];
      for (let corner = 0; corner < 4; corner++) {
        const r = top + (corner >> 1);
        const q = left + (corner & 1);
        if (r < 0 || r >= rows || q < 0 || q >= columns) continue;
        const weight = (1 - Math.abs(row - r)) * (1 - Math.abs(column - q));
        for (let start = 0; start < data.length; start += area) {
          out[start + y * columns + x] += weight * data[start + r * columns + q];
        }
      }
    }
  }
  return { data: out, shape: [...shape] };
}

// Pictures `[…, h, w]` turned counter-clockwise about their centre, as eqtutor.actions.rotate does:
// exact at multiples of 90°, otherwise bilinear in the same frame.
export function rotate(data, shape, degrees) {
  const quarters = degrees / 90;
  if (Number.isInteger(quarters)) return moveExactly(data, shape, ((quarters % 4) + 4) % 4);
  const t = (degrees * Math.PI) / 180;
  return interpolate(data, shape, [[Math.cos(t), Math.sin(t)], [-Math.sin(t), Math.cos(t)]]);
}

export function softmax(scores) {
  const top = Math.max(...scores);
  const powers = Array.from(scores, score => Math.exp(score - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map(power => power / sum);
}
