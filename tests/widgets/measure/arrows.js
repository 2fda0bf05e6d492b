() => {
  // Horizontal distance between an arrow's tip and the middle of the panel it points to, the
  // largest of all that are visible. Where a row is one picture, its panels are frames over it,
  // and the picture must fill them.
  const middle = element => {
    const box = element.getBoundingClientRect();
    return (box.left + box.right) / 2;
  };
  const offsets = svg => {
    const tips = [...svg.querySelectorAll('.tip')].map(middle).sort((a, b) => a - b);
    const row = svg.nextElementSibling.nextElementSibling;
    const strip = row.classList.contains('strip');
    const panels = [...row.querySelectorAll(strip ? 'i' : 'img')];
    const off = panels.map((panel, i) => Math.abs(middle(panel) - tips[i]));
    if (!strip) return off;
    const [first, last, picture] = [panels[0], panels.at(-1), row.querySelector('img')]
      .map(element => element.getBoundingClientRect());
    return off.concat([
      picture.left - first.left,
      picture.right - last.right,
      picture.top - first.top,
      picture.bottom - last.bottom,
    ].map(Math.abs));
  };
  const visible = [...document.querySelectorAll('svg')].filter(e => e.checkVisibility());
  return Math.max(0, ...visible.flatMap(offsets));
}
