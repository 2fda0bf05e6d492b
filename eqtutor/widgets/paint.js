// Panels to paint on, and what each element of the group makes of them. Place i of the panels
// moved by h shows the value that stood at place data.from[h][i]. Each widget brings this script:
// it looks at each only once.
document.querySelectorAll('.eqtutor-paint').forEach(root => {
  if (root.ready) return;
  root.ready = true;
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const { size, panels, from } = data;
  const original = root.querySelector('.original');
  const moved = [...root.querySelectorAll('.moved')];
  const output = root.querySelector('output');
  const [cell, gap] = [12, 10];
  const step = size * cell + gap; // from one panel to the next
  const everywhere = data.values.map((_, place) => place);
  let values = [...data.values];
  let cursor = data.cursor;
  let brush = null; // the value that a stroke paints, while there is one

  const split = place => {
    const inside = place % (size * size);
    return [Math.floor(place / (size * size)), Math.floor(inside / size), inside % size];
  };

  const draw = (canvas, places) => {
    const pen = canvas.getContext('2d');
    canvas.width = panels * step - gap;
    canvas.height = size * cell;
    places.forEach((source, place) => {
      const [panel, row, column] = split(place);
      const [x, y] = [panel * step + column * cell, row * cell];
      pen.fillStyle = values[source] ? '#123a5c' : '#e6e6e6';
      pen.fillRect(x, y, cell - 1, cell - 1);
      if (source !== cursor) return;
      pen.strokeStyle = '#d55e00';
      pen.lineWidth = 3;
      pen.strokeRect(x + 1.5, y + 1.5, cell - 4, cell - 4);
    });
  };

  const named = place => {
    const [panel, row, column] = split(place);
    return `panel ${panel}, row ${row}, column ${column}`;
  };

  const show = () => {
    draw(original, everywhere);
    moved.forEach((canvas, i) => draw(canvas, from[i]));
    const ends = from.map((places, i) => `${data.labels[i]}: ${named(places.indexOf(cursor))}`);
    output.textContent = `${named(cursor)} goes by ${ends.join('; by ')}`;
  };

  const placeUnder = event => {
    const box = original.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * original.width;
    const y = ((event.clientY - box.top) / box.height) * original.height;
    const [panel, row] = [Math.floor(x / step), Math.floor(y / cell)];
    const column = Math.floor((x - panel * step) / cell);
    const inside = Math.min(row, column) >= 0 && Math.max(row, column) < size;
    return inside && panel < panels ? (panel * size + row) * size + column : null;
  };

  const paint = () => {
    if (brush !== null) values[cursor] = brush;
    show();
  };

  original.addEventListener('pointerdown', event => {
    const place = placeUnder(event);
    if (place === null) return;
    original.setPointerCapture(event.pointerId);
    cursor = place;
    brush = values[place] ? 0 : 1;
    paint();
  });

  original.addEventListener('pointermove', event => {
    const place = placeUnder(event);
    if (place === null || place === cursor) return;
    cursor = place;
    paint();
  });

  for (const end of ['pointerup', 'pointercancel']) {
    original.addEventListener(end, () => {
      brush = null;
    });
  }

  const keys = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: -size,
    ArrowDown: size,
    ' ': 0,
  };

  original.addEventListener('keydown', event => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    cursor = (cursor + keys[event.key] + values.length) % values.length;
    if (event.key === ' ') values[cursor] = values[cursor] ? 0 : 1;
    show();
  });

  root.querySelector('button').addEventListener('click', () => {
    values = values.map(() => 0);
    show();
  });

  show();
});
