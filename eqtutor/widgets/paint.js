// Panels to paint on, and what each element of the group makes of them: it moves each panel, and
// panel q to the place of the product hq.
import { bytesOf, clamp, inkOf, make, move, movePlace, onTheme, packed, paint, placeMark, Scene,
  turnOf } from './shared.js';

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

class Painting extends Scene {
  constructor(root, number) {
    super(root, `paint${number ? number + 1 : ''}.`);
    const { group, values, panels, size, names } = this.spec;
    this.turns = group.matrices.map(turnOf)
      .map(({ degrees, mirror }) => ({ turn: degrees, mirror }));
    const first = Math.max(values.indexOf(1), 0);
    this.state = { values: Float64Array.from(values), cursor: this.split(first) };
    this.rows = [...root.querySelectorAll('.row')];
    root.style.setProperty('--n', panels);
    root.classList.toggle('many', panels > 4);
    for (const row of this.rows) {
      row.style.setProperty('--w', size);
      row.replaceChildren(...Array.from({ length: panels }, (_, q) => {
        const mark = make('i', { className: 'spot', hidden: true });
        const sheet = make('span', {}, make('canvas'), mark);
        const caption = make('small', { textContent: panels > 1 ? names[q] : '' });
        return make('div', {}, sheet, caption);
      }));
    }
    this.sheet = this.rows[0];
    this.listen();
    onTheme(() => this.request());
    this.begin();
  }

  become(change) {
    Object.assign(this.state, change);
    this.request();
  }

  // [panel, row, column] of a place by its number, and the number.
  split(place) {
    const { size } = this.spec;
    const inside = place % (size * size);
    return [Math.floor(place / (size * size)), Math.floor(inside / size), inside % size];
  }

  numberOf([panel, row, column]) {
    return (panel * this.spec.size + row) * this.spec.size + column;
  }

  // Where a place goes by an element.
  goes([panel, ...place], h) {
    const to = this.spec.panels > 1 ? this.spec.group.mul[h][panel] : 0;
    return [to, ...movePlace(place, this.spec.size, this.turns[h]).map(Math.round)];
  }

  // All panels, moved by an element.
  movedBy(h) {
    const { panels, size, group } = this.spec;
    const { data } = move({ data: this.state.values, shape: [panels, size, size] }, this.turns[h]);
    const out = new Float64Array(data.length);
    const area = size * size;
    for (let q = 0; q < panels; q++) {
      const to = panels > 1 ? group.mul[h][q] : 0;
      out.set(data.subarray(q * area, (q + 1) * area), to * area);
    }
    return out;
  }

  // --- the brush

  listen() {
    let brush = null; // the value that a stroke paints, while there is one
    const stroke = event => {
      const place = this.under(event);
      if (place) this.put(place, brush);
    };
    this.sheet.addEventListener('pointerdown', event => {
      const place = this.under(event);
      if (!place || event.button) return;
      event.preventDefault();
      this.sheet.focus({ preventScroll: true });
      this.sheet.setPointerCapture(event.pointerId);
      brush = this.state.values[this.numberOf(place)] ? 0 : 1;
      this.put(place, brush);
    });
    this.sheet.addEventListener('pointermove', event => {
      if (brush !== null) stroke(event);
      else if (event.pointerType === 'mouse' && this.under(event)) {
        this.set({ cursor: this.under(event) });
      }
    });
    for (const end of ['pointerup', 'pointercancel']) {
      this.sheet.addEventListener(end, () => (brush = null));
    }
    this.sheet.addEventListener('keydown', event => this.key(event));
    this.root.querySelector('.wipe').addEventListener('click', () => this.wipe());
  }

  // The place under the pointer, if there is one.
  under({ clientX, clientY }) {
    const { size } = this.spec;
    const panel = [...this.sheet.children].findIndex(child => {
      const box = child.querySelector('canvas').getBoundingClientRect();
      return clientX >= box.left && clientX < box.right
        && clientY >= box.top && clientY < box.bottom;
    });
    if (panel < 0) return null;
    const box = this.sheet.children[panel].querySelector('canvas').getBoundingClientRect();
    const at = [(clientY - box.top) / box.height, (clientX - box.left) / box.width];
    return [panel, ...at.map(share => clamp(Math.floor(share * size), 0, size - 1))];
  }

  put(place, value) {
    const values = this.state.values.slice();
    values[this.numberOf(place)] = value;
    this.set({ values, cursor: place });
  }

  wipe() {
    this.set({ values: new Float64Array(this.state.values.length) });
  }

  // From the rim of a panel on to the next one.
  key(event) {
    const { cursor, values } = this.state;
    const { size, panels } = this.spec;
    if (event.key === ' ') this.put(cursor, values[this.numberOf(cursor)] ? 0 : 1);
    else if (event.key === 'Delete') this.wipe();
    else if (Object.hasOwn(STEPS, event.key)) {
      const [down, right] = STEPS[event.key];
      const [panel, row, column] = cursor;
      const across = clamp(panel * size + column + right, 0, panels * size - 1);
      const place = [Math.floor(across / size), clamp(row + down, 0, size - 1), across % size];
      this.set({ cursor: place });
    } else return;
    event.preventDefault();
  }

  // --- what is seen

  show() {
    const { size } = this.spec;
    const [ink, card] = inkOf(this.root, ['ink', 'card']).map(packed);
    const area = size * size;
    this.rows.forEach((row, h) => {
      const values = this.movedBy(h);
      const [at, ...place] = this.goes(this.state.cursor, h);
      [...row.children].forEach((panel, q) => {
        const colourOf = i => (values[q * area + i] ? ink : card);
        paint(panel.querySelector('canvas'), [size, size], colourOf);
        const mark = panel.querySelector('.spot');
        mark.hidden = q !== at;
        placeMark(mark.style, place, size);
      });
      row.classList.add('follows');
    });
    this.root.querySelector('output').textContent = this.words();
  }

  words() {
    const { names, panels } = this.spec;
    const { cursor } = this.state;
    const say = ([panel, row, column]) => {
      return (panels > 1 ? `panel ${panel}, ` : '') + `row ${row}, column ${column}`;
    };
    const ends = names.slice(1).map((name, i) => `${name}: ${say(this.goes(cursor, i + 1))}`);
    return `${say(cursor)} goes by ${ends.join('; by ')}`;
  }

  // --- the address: eight places a letter

  readAddress() {
    const text = new URLSearchParams(location.hash.slice(1)).get(`${this.prefix}ink`);
    if (!/^[\w-]+$/.test(text ?? '')) return;
    const bytes = bytesOf(text.replaceAll('-', '+').replaceAll('_', '/'));
    const n = this.state.values.length;
    if (bytes.length !== Math.ceil(n / 8)) return;
    const bit = (_, i) => (bytes[i >> 3] >> (i & 7)) & 1;
    this.become({ values: Float64Array.from({ length: n }, bit) });
  }

  settle() {
    this.settling = null;
    this.root.querySelector('.spoken').textContent = this.words();
    const bytes = new Uint8Array(Math.ceil(this.state.values.length / 8));
    this.state.values.forEach((value, i) => (bytes[i >> 3] |= value << (i & 7)));
    const text = btoa(String.fromCharCode(...bytes));
    const ink = text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
    this.writeAddress({ ink });
  }
}

export function start() {
  document.querySelectorAll('.eqtutor-paint').forEach((root, number) => {
    root.widget ??= new Painting(root, number);
  });
}
