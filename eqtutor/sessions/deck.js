// Slides of 1280 by 720, without a server, with the notes under the key N.
Reveal.initialize({
  width: 1280,
  height: 720,
  margin: 0.02,
  center: false,
  hash: true,
  controls: false,
  slideNumber: slide => [(slide && slide.dataset.number) || ''],   // the title has none
  transition: 'none',
  pdfSeparateFragments: false,
  // a widget takes its own keys
  keyboardCondition: event => !event.target || !event.target.closest
    || !event.target.closest('[id^="eqtutor-"]'),
});
// what is too high for its slide is shown smaller
function fit(slide) {
  const columns = slide.querySelector('.columns');
  for (let zoom = 1; columns && slide.scrollHeight > 720 && zoom > 0.6; zoom -= 0.02) {
    columns.style.zoom = zoom;
  }
}
// a widget grows once it has drawn
const observer = new ResizeObserver(changes => {
  changes.forEach(change => fit(change.target.closest('section')));
});
document.querySelectorAll('.columns').forEach(columns => observer.observe(columns));
Reveal.addKeyBinding({keyCode: 78, key: 'N', description: 'Notes'}, () => {
  Reveal.configure({showNotes: !Reveal.getConfig().showNotes});
});
