widget => {
  // What is seen and heard: label, the slider's spoken value, all text, positions, their pictures.
  const frames = [...widget.querySelectorAll('[data-frame]')].filter(e => e.checkVisibility());
  const images = frames.flatMap(frame => [...frame.querySelectorAll('img')]);
  return {
    label: widget.querySelector('output').textContent,
    spoken: widget.querySelector('input').getAttribute('aria-valuetext'),
    text: widget.innerText,
    positions: frames.length,
    html: frames.map(frame => frame.innerHTML).join(),
    images: images.map(image => image.src),
  };
}
