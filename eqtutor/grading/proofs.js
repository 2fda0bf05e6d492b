// Marks of proofs by the keyboard: what is given stays in this browser until it is saved as a file.
const answers = [...document.querySelectorAll('article')];
const store = 'marks of ' + location.pathname;
const given = JSON.parse(localStorage.getItem(store) || '{}');

const keyOf = (a) => JSON.stringify([a.dataset.name, a.dataset.id]);
const markOf = (a) => given[keyOf(a)] ?? a.dataset.mark;

function show() {
  for (const a of answers) a.querySelector('output').textContent = markOf(a) || '–';
  const left = answers.filter((a) => markOf(a) === '').length;
  document.getElementById('left').textContent = `${left} of ${answers.length} still to mark`;
}

function give(a, mark) {
  given[keyOf(a)] = mark;
  localStorage.setItem(store, JSON.stringify(given));
  show();
}

function go(a, step) {
  const next = answers[answers.indexOf(a) + step];
  if (!next) return;
  next.focus();
  next.scrollIntoView({block: 'center'});
}

// what a key does to the answer that has the focus; false where it does nothing
function press(a, key) {
  const of = Number(a.dataset.of);
  if (/^[0-9]$/.test(key) && Number(key) <= of) {
    give(a, key);
    go(a, 1);
  } else if (key === 'h' && Number(markOf(a)) + 0.5 <= of) give(a, String(Number(markOf(a)) + 0.5));
  else if (key === 'Backspace') give(a, '');
  else if (key === 'j') go(a, 1);
  else if (key === 'k') go(a, -1);
  else return false;
  return true;
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const a = document.activeElement.closest('article');
  if (a && press(a, event.key)) event.preventDefault();
});

function asCsv() {
  const quoted = (text) => '"' + text.replaceAll('"', '""') + '"';
  const rows = answers.map((a) => [a.dataset.name, a.dataset.id, markOf(a)]);
  return [['submission', 'exercise', 'mark'], ...rows]
    .map((row) => row.map(quoted).join(',')).join('\n') + '\n';
}

document.getElementById('save').addEventListener('click', () => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([asCsv()], {type: 'text/csv'}));
  link.download = 'by-hand.csv';
  link.click();
});

show();
if (answers.length) answers[0].focus();
