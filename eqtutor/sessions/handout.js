// A font that is wider than the writer's makes the handout longer: set it smaller, to one page.
function fit() {
  const main = document.querySelector('main'), room = 277 / 25.4 * 96;   // A4 less the margins
  for (let size = 8.5; main.offsetHeight > room && size > 7; size -= 0.1) {
    document.body.style.fontSize = `${size}pt`;
  }
}
window.addEventListener('load', fit);
