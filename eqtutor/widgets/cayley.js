// Walk through a group: its elements are places, its generators the ways between them; an element g
// that multiplies from the left carries the whole map, ways and all.
import { draw, drawArrows, make, Scene } from './shared.js';

const APART = 58; // places on the map, in units of its drawing
const LETTER = 'M-4 6V-6H5V-3H-1V-1H3V2H-1V6Z'; // an F, which no move leaves as it is

class Walk extends Scene {
  constructor(root, number) {
    super(root, `walk${number ? number + 1 : ''}.`);
    const { group, names } = this.spec;
    this.state = { g: 0 };
    this.slider = root.querySelector('.turning input');
    this.slider.addEventListener('input', () => this.set({ g: Number(this.slider.value) }));
    this.map = root.querySelector('.map');
    this.arrows = root.querySelector('.arrows');
    root.style.setProperty('--n', names.length);
    this.drawMap();
    for (const name of ['before', 'after']) {
      const letters = group.mul.map((_, h) => this.panel(h));
      root.querySelector(`.${name}`).replaceChildren(...letters);
    }
    this.begin();
  }

  become(change) {
    Object.assign(this.state, change);
    this.request();
  }

  // The F moved by an element; the y of the screen points down.
  letter(h) {
    const [[a, b], [c, d]] = this.spec.group.matrices[h];
    const transform = `matrix(${a},${-c},${-b},${d},0,0)`;
    return draw('path', { class: 'letter', d: LETTER, transform });
  }

  panel(h) {
    const picture = draw('svg', { viewBox: '-10 -10 20 20', 'aria-hidden': true });
    picture.append(this.letter(h));
    return make('div', {}, picture, make('small', { textContent: `${h}: ${this.spec.names[h]}` }));
  }

  // The ways h → hs between the places; a generator that undoes itself has no heads.
  drawMap() {
    const { edges, names } = this.spec;
    const far = 20 + Math.max(...this.spec.places.flat().map(Math.abs)) * APART;
    this.map.setAttribute('viewBox', [-far, -far, 2 * far, 2 * far].join(' '));
    const at = h => this.spec.places[h].map((v, k) => (k ? -v : v) * APART);
    edges.forEach(({ arrows, both }, kind) => {
      for (const [from, to] of arrows) {
        this.map.append(...this.way(at(from), at(to), kind, both));
      }
    });
    this.nodes = names.map((_, h) => {
      const [x, y] = at(h);
      const node = draw('g', { transform: `translate(${x} ${y})` });
      node.append(draw('circle', { r: 13 }));
      this.map.append(node);
      return node;
    });
    const words = edges.map(({ by, both }, kind) => {
      const line = draw('svg', { width: 26, height: 6, 'aria-hidden': true });
      line.append(draw('path', { class: `way way${kind}`, d: 'M0 3H26' }));
      return make('span', {}, line, `h ${both ? '–' : '→'} h·${by} (${names[by]})`);
    });
    this.root.querySelector('.legend').replaceChildren(...words);
  }

  // From the rim of a place to that of another, with a head.
  way([x, y], [u, v], kind, both) {
    const length = Math.hypot(u - x, v - y);
    const [dx, dy] = [(u - x) / length, (v - y) / length];
    const point = (along, aside) => {
      return `${x + along * dx + aside * dy} ${y + along * dy - aside * dx}`;
    };
    const end = length - 14;
    const line = draw('path', { class: `way way${kind}`, d: `M${point(14, 0)}L${point(end, 0)}` });
    if (both) return [line];
    const tip = `M${point(end, 0)}L${point(end - 7, 3.5)}L${point(end - 7, -3.5)}Z`;
    return [line, draw('path', { class: 'tip', d: tip })];
  }

  show() {
    const { g } = this.state;
    const { group, names, facts } = this.spec;
    const to = group.mul[g];
    this.nodes.forEach((node, h) => {
      const number = draw('text', { x: 8, y: 12 }, String(to[h]));
      const small = draw('g', { transform: 'scale(.9)' });
      small.append(this.letter(to[h]));
      node.replaceChildren(node.firstChild, small, number);
    });
    this.slider.value = g;
    const words = `g = ${g}: ${names[g]}`;
    this.slider.setAttribute('aria-valuetext', words);
    this.root.querySelector('.angle').textContent = words;
    this.root.querySelector('.facts').textContent = facts[g];
    const ways = to.map((q, h) => `${h} to ${q}`).join(', ');
    this.map.setAttribute('aria-label', `the map, multiplied by ${g}: ${ways}`);
    this.arrows.setAttribute('aria-label', `where each element goes: ${ways}`);
    drawArrows(this.arrows, to);
  }

  readAddress() {
    const [get] = this.address();
    const g = Number.parseInt(get('g'), 10);
    this.become(g in this.spec.names ? { g } : {});
  }

  settle() {
    this.settling = null;
    const { g } = this.state;
    this.root.querySelector('.spoken').textContent = `${this.spec.names[g]}: ${this.spec.facts[g]}`;
    this.writeAddress({ g });
  }
}

export function start() {
  document.querySelectorAll('.eqtutor-cayley').forEach((root, number) => {
    root.widget ??= new Walk(root, number);
  });
}
