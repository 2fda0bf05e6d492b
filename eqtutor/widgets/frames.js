// The slider shows one of the prepared frames, and says which. The same widget may stand on a page
// twice, and each brings this script: so it looks at all of them, and at each only once.
document.querySelectorAll('.eqtutor-frames').forEach(root => {
  if (root.ready) return;
  root.ready = true;
  const slider = root.querySelector('input');
  const output = root.querySelector('output');
  const frames = [...root.querySelectorAll('[data-frame]')];

  const show = () => {
    const position = Number(slider.value);
    frames.forEach((frame, i) => {
      frame.hidden = i !== position;
    });
    const label = frames[position].dataset.frame;
    output.textContent = label;
    slider.setAttribute('aria-valuetext', label);
  };

  slider.addEventListener('input', show);
  show();
});
