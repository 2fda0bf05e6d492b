() => {
  // Where the dial's middle is, and what the headline says, each time the widget is drawn.
  window.centres = new Set();
  window.said = new Set();
  const widget = document.querySelector('.eqtutor-turn').widget;
  const show = widget.show.bind(widget);
  widget.show = () => {
    show();
    const { x, y, width, height } = widget.dial.box.getBoundingClientRect();
    window.centres.add(`${x + width / 2 + scrollX} ${y + height / 2 + scrollY}`);
    window.said.add(widget.headline);
  };
}
