// Slides of 1280 by 720, without a server, with the notes under the key N.
Reveal.initialize({
  width: 1280,
  height: 720,
  margin: 0.02,
  center: false,
  hash: true,
  transition: 'none',
  pdfSeparateFragments: false,
  // a widget takes its own keys
  keyboardCondition: event => !event.target || !event.target.closest
    || !event.target.closest('[id^="eqtutor-"]'),
});
Reveal.addKeyBinding({keyCode: 78, key: 'N', description: 'Notes'}, () => {
  Reveal.configure({showNotes: !Reveal.getConfig().showNotes});
});
