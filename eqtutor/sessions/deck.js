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
// what is too high or too wide for its slide is shown smaller
function fit(slide) {
  const columns = slide.querySelector('.columns');
  const wide = () => {
    const edge = slide.getBoundingClientRect().right + 1;
    return [...columns.querySelectorAll('mrow')]
      .some(row => row.getBoundingClientRect().right > edge);
  };
  for (let zoom = 1; columns && (slide.scrollHeight > 720 || wide()) && zoom > 0.6; zoom -= 0.02) {
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
  Reveal.layout();   // the slide has less room beside them
});
// notes that the room does not see
let pane = null;
function tell() {
  const slide = Reveal.getCurrentSlide(), note = slide.querySelector('.notes');
  if (!pane || pane.closed) return;
  pane.document.title = 'Notes';
  pane.document.body.style.font = '24px/1.4 system-ui, sans-serif';
  pane.document.body.textContent = note ? `${slide.dataset.number}. ${note.textContent}` : '';
}
Reveal.addKeyBinding({keyCode: 83, key: 'S', description: 'Notes in a window'}, () => {
  pane = window.open('', 'eqtutor-notes', 'width=640,height=480');
  tell();
});
Reveal.on('slidechanged', tell);
