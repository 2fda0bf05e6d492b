// A pixel is chosen on the image and a group element on the slider; the panels for both are put
// together from prepared pieces. Each widget brings this script: it looks at each only once.
document.querySelectorAll('.eqtutor-spots').forEach(root => {
  if (root.ready) return;
  root.ready = true;
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const slider = root.querySelector('input');
  const output = root.querySelector('output');
  const picture = root.querySelector('.spot img');
  const view = root.querySelector('[data-frame]');
  const buttons = [...root.querySelectorAll('button')];
  let pixel = data.start; // of the image as it was, by its number

  const show = () => {
    const element = Number(slider.value);
    const place = data.to[element][pixel]; // where the pixel lies now
    const label = data.labels[element];
    buttons.forEach((button, i) => {
      button.setAttribute('aria-checked', i === place);
      button.tabIndex = i === place ? 0 : -1;
    });
    picture.src = data.pictures[element];
    picture.alt = picture.alt.replace(/row.*/, buttons[place].getAttribute('aria-label'));
    output.textContent = label;
    view.dataset.frame = label;
    slider.setAttribute('aria-valuetext', label);
    view.innerHTML = data.frames[element][pixel].map(k => data.pieces[k]).join('');
  };

  const pick = place => {
    pixel = data.to[slider.value].indexOf(place);
    show();
    buttons[place].focus();
  };

  // The nearest button in a direction; one step aside costs as much as two ahead.
  const neighbour = (place, [down, right]) => {
    const [row, column] = data.at[place];
    const costs = data.at.map(([y, x]) => {
      const ahead = (y - row) * down + (x - column) * right;
      const aside = Math.abs((y - row) * right - (x - column) * down);
      return ahead > 0 ? ahead + 2 * aside : Infinity;
    });
    const least = Math.min(...costs);
    return least < Infinity ? costs.indexOf(least) : null;
  };

  const directions = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
  };

  buttons.forEach((button, place) => {
    button.addEventListener('click', () => pick(place));
    button.addEventListener('keydown', event => {
      const direction = directions[event.key];
      if (!direction) return;
      event.preventDefault();
      const next = neighbour(place, direction);
      if (next !== null) pick(next);
    });
  });

  slider.addEventListener('input', show);
  show();
});
